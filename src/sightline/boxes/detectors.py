"""Text detectors behind one small interface. Each states which of its findings count; none downloads anything."""

from __future__ import annotations

import csv
import importlib.metadata
import importlib.util
import math
import os
import shutil
import subprocess
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, cast

from sightline.core.registry import Registry
from sightline.errors import SightlineError

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class FoundText:
    """One piece of text: its outline in pixels, its reading (empty when nobody read it) and how sure the engine is."""

    outline: tuple[tuple[float, float], ...]
    confidence: float
    text: str = ""


class Detector(Protocol):
    """Made once per worker process, called once per image."""

    name: ClassVar[str]
    rule: ClassVar[str]
    """Which findings are shown to selectors, in words; part of what a run reports."""

    @classmethod
    def require(cls) -> str:
        """The version in use; refuses with a line that says how to get what is missing."""
        ...

    def find(self, image: np.ndarray) -> list[FoundText]:
        """(H, W, 3) uint8 RGB -> the findings that the rule admits."""
        ...

    def read(self, image: np.ndarray) -> list[FoundText]:
        """All findings with their text, whatever their confidence."""
        ...


DETECTORS: Registry[type[Detector]] = Registry("text detector", group="sightline.detectors")
"""Name -> class. Other packages add theirs through the entry-point group."""


def detector_named(text: str) -> type[Detector]:
    """A registered detector; behind a colon the one option there is: ``easyocr:confidence=0.2``."""
    name, colon, option = text.partition(":")
    kind = DETECTORS.get(name)
    if not colon:
        return kind
    if not issubclass(kind, FindsByReading):
        raise SightlineError(f"text detector {name} takes no option, got '{option}'")
    key, _, value = option.partition("=")
    try:
        confidence = float(value)
    except ValueError:
        confidence = math.nan
    if key != "confidence" or not 0.0 <= confidence <= 1.0:
        raise SightlineError(f"text detector {name} takes confidence=0 to confidence=1, got '{option}'")
    return cast("type[Detector]", kind.at_least(confidence))


class FindsByReading(ABC):
    """A detector without a stage of its own: it finds what it reads with enough confidence."""

    LEAST: ClassVar[float]
    RULE: ClassVar[str] = "findings with a confidence of at least {least:g}"
    """The rule for any bound."""
    ARTIFACT: ClassVar[float | None] = None
    """The bound of the artifact, where it differs."""

    @classmethod
    def at_least(cls, confidence: float) -> type[Self]:
        """The same detector with another bound. Its rule says so, and results are remembered by the rule."""
        rule = cls.RULE.format(least=confidence, percent=100.0 * confidence)
        return type(cls.__name__, (cls,), {"LEAST": confidence, "rule": rule})

    def find(self, image: np.ndarray) -> list[FoundText]:
        return [finding for finding in self.read(image) if finding.confidence >= self.LEAST]

    @abstractmethod
    def read(self, image: np.ndarray) -> list[FoundText]: ...


@DETECTORS.register("rapidocr")
class RapidOcr:
    """PP-OCR through onnxruntime. Its wheel carries the weights."""

    name: ClassVar[str] = "rapidocr"
    rule: ClassVar[str] = "text detection alone, boxes with a mean text probability of at least 0.5; nothing is read"
    LEAST: ClassVar[float] = 0.5

    @classmethod
    def require(cls) -> str:
        version = _version("rapidocr", "pip install rapidocr onnxruntime")
        _version("onnxruntime", "pip install onnxruntime")
        found = importlib.util.find_spec("rapidocr")
        models = Path(cast(str, cast(Any, found).origin)).parent / "models"
        if not any(models.glob("*det*.onnx")) or not any(models.glob("*rec*.onnx")):
            raise SightlineError(
                f"rapidocr {version} has no weights in {models}; reinstall it (its wheel carries them): "
                "pip install --force-reinstall --no-deps rapidocr"
            )
        return version

    def __init__(self) -> None:
        from rapidocr import RapidOCR

        # One thread per worker where several share the machine; the pool says so through the environment.
        threads = int(os.environ.get("OMP_NUM_THREADS", "-1") or -1)
        self._engine = RapidOCR(
            params={
                "Global.log_level": "error",
                "EngineConfig.onnxruntime.intra_op_num_threads": threads,
                "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            }
        )

    def find(self, image: np.ndarray) -> list[FoundText]:
        output = self._engine(image[:, :, ::-1], use_cls=False, use_rec=False, box_thresh=self.LEAST)
        return _findings(output.boxes, output.scores)

    def read(self, image: np.ndarray) -> list[FoundText]:
        output = self._engine(image[:, :, ::-1], use_det=True, use_cls=False, use_rec=True, text_score=0.0)
        return _findings(output.boxes, output.scores, output.txts)


@DETECTORS.register("easyocr")
class EasyOcr(FindsByReading):
    """CRAFT and a recogniser, as the paper used it. Its weights must lie in its model folder already."""

    name: ClassVar[str] = "easyocr"
    RULE: ClassVar[str] = "detected and read from a file, confidence of at least {least:g}"
    LEAST: ClassVar[float] = 0.0
    rule: ClassVar[str] = RULE.format(least=LEAST)
    ARTIFACT: ClassVar[float | None] = 0.20

    @classmethod
    def require(cls) -> str:
        version = _version("easyocr", "pip install easyocr")
        folder = Path(os.environ.get("EASYOCR_MODULE_PATH", Path.home() / ".EasyOCR")) / "model"
        for name in ("craft_mlt_25k.pth", "english_g2.pth"):
            if not (folder / name).is_file():
                raise SightlineError(
                    f"easyocr {version} has no weights: {folder / name} is missing; run "
                    "python -c \"import easyocr; easyocr.Reader(['en'])\" once on a machine with a network "
                    "and copy the folder here"
                )
        return version

    def __init__(self) -> None:
        import easyocr

        self._reader = easyocr.Reader(["en"], gpu=True, download_enabled=False, verbose=False)

    def read(self, image: np.ndarray) -> list[FoundText]:
        """From a file, as the paper's images were: it is searched in RGB and read in the gray of its colours.

        An array would be searched as it is and read in a gray that takes it for BGR, so that none gives both. The file
        is not compressed, which keeps its writing out of what the search is seen to take.
        """
        from PIL import Image

        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder, "image.bmp"))
            Image.fromarray(image).save(file)
            results = self._reader.readtext(file, detail=1, paragraph=False)
        return [FoundText(_outline(outline), float(sure), str(text)) for outline, text, sure in results]


@DETECTORS.register("tesseract")
class Tesseract(FindsByReading):
    """The ``tesseract`` program, sparse text mode, one box per word."""

    name: ClassVar[str] = "tesseract"
    RULE: ClassVar[str] = "words (page segmentation mode 11) with a confidence of at least {percent:g} of 100"
    LEAST: ClassVar[float] = 0.20
    rule: ClassVar[str] = RULE.format(percent=100.0 * LEAST)

    @classmethod
    def require(cls) -> str:
        program = shutil.which("tesseract")
        if program is None:
            raise SightlineError(
                "tesseract is not installed; install the program with its English data (apt-get install tesseract-ocr)"
            )
        shown = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
        return (shown.stdout or shown.stderr).split("\n")[0].removeprefix("tesseract ").strip()

    def read(self, image: np.ndarray) -> list[FoundText]:
        from PIL import Image

        from sightline.probes.images import stored_as

        command = ["tesseract", "stdin", "stdout", "--psm", "11", "tsv"]
        done = subprocess.run(
            command,
            input=stored_as(Image.fromarray(image), "PNG"),
            capture_output=True,
            check=False,
            env={**os.environ, "OMP_THREAD_LIMIT": "1"},
        )
        if done.returncode:
            message = done.stderr.decode(errors="replace").strip().splitlines()
            raise SightlineError(f"tesseract failed: {message[-1] if message else done.returncode}")
        return words_of_tsv(done.stdout.decode(errors="replace"))


def words_of_tsv(table: str) -> list[FoundText]:
    """Word rows (level 5) of tesseract's table; its confidence is a percentage, -1 where there is no word."""
    rows = csv.DictReader(table.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    if "conf" not in (rows.fieldnames or ()):
        raise SightlineError("tesseract wrote no table; its output starts with " + repr(table[:40]))
    found = []
    for row in rows:
        text = (row["text"] or "").strip()
        if row["level"] == "5" and text:
            x, y, w, h = (float(row[name]) for name in ("left", "top", "width", "height"))
            corners = ((x, y), (x + w, y), (x + w, y + h), (x, y + h))
            found.append(FoundText(corners, float(row["conf"]) / 100.0, text))
    return found


def _version(package: str, how: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        raise SightlineError(f"{package} is not installed; {how}") from None


def _outline(points: Any) -> tuple[tuple[float, float], ...]:
    return tuple((float(x), float(y)) for x, y in points)


def _findings(outlines: Any, scores: Any, texts: Any = None) -> list[FoundText]:
    if outlines is None or not len(outlines):
        return []
    read = texts if texts is not None else [""] * len(outlines)
    sure = scores if scores is not None else [1.0] * len(outlines)
    return [FoundText(_outline(o), float(s), str(t)) for o, s, t in zip(outlines, sure, read, strict=True)]
