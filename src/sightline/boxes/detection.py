"""Detectors over many images: once per image, several processes at a time, remembered by the image's digest.

What they show as boxes, and what they read.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from sightline.boxes.detectors import Detector, FoundText, detector_named
from sightline.core.cache import cache_folder, remember
from sightline.core.probe import Box
from sightline.errors import SightlineError, first_line
from sightline.places.listing import Place, place
from sightline.probes.images import image_digest, image_files, open_image

SAME = 1e-6
"""Boxes whose coordinates all agree to this are one box."""
READING = "read"
"""What a worker process is told that reads, instead of showing boxes."""
UNUSABLE = (ValueError, KeyError, TypeError, OverflowError, RecursionError)
"""What reading a result raises that no detector has written."""


@dataclass(frozen=True)
class Detected:
    """What a detector showed for one image."""

    boxes: tuple[Box, ...]
    """Axis-aligned, in fractions of the image, clipped to it."""
    ms: float
    """The detector's call alone: loading, decoding and starting up are not billed."""
    outside: int
    """Findings that lie outside the image or have no extent, and were left out."""


def detect(
    detector: str,
    root: Place,
    names: Iterable[str],
    *,
    workers: int | None = None,
    tell: Callable[[str, Detected], object] = lambda name, found: None,
) -> dict[str, Detected]:
    """Image name -> what the detector shows. Only images that were never seen by this detector are run.

    ``detector`` is a name, with an option behind a colon where it takes one.

    ``tell`` hears of every image as soon as its result is known; what it raises ends the search.
    """
    kind = detector_named(detector)
    version = kind.require()
    rule = sha256(kind.rule.encode()).hexdigest()[:8]
    folder = cache_folder() / "boxes" / f"{kind.name}-{version}-{rule}"
    files = {}
    for name, opened in image_files(root, list(dict.fromkeys(names))):
        with opened() as file:
            files[name] = folder / f"{image_digest(file)[7:]}.json"
    known = {name: found for name, file in files.items() if (found := _read(file)) is not None}
    missing = [name for name in files if name not in known]
    for name, result in known.items():
        tell(name, result)
    if missing:

        def done(name: str, found: Detected) -> None:
            remember(files[name], json.dumps(asdict(found)).encode())
            known[name] = found
            tell(name, found)

        _run(detector, root, missing, workers, done)
    return {name: known[name] for name in files}


@dataclass(frozen=True)
class TextsRead:
    """Everything that an engine read in one image, whatever its confidence."""

    width: int
    height: int
    texts: tuple[FoundText, ...]
    """Outlines are in pixels of the image."""
    problem: str = ""
    """Why nothing could be read; such an image is asked for again next time."""


def read_texts(
    detector: str,
    root: Place,
    names: Iterable[str],
    *,
    cache: Path | None = None,
    tell: Callable[[str], object] = lambda name: None,
) -> dict[str, TextsRead]:
    """Image name -> what the engine reads; images that it has read before are not read again.

    Unlike ``detect`` an image that cannot be opened is no error: its result says what is wrong with it.
    """
    kind = detector_named(detector)
    folder = (cache or cache_folder()) / "texts" / f"{kind.name}-{kind.require()}"
    files: dict[str, Path] = {}
    found: dict[str, TextsRead] = {}
    for name, opened in image_files(root, list(dict.fromkeys(names))):
        try:
            with opened() as file:
                files[name] = folder / f"{image_digest(file)[7:]}.json"
            found[name] = _texts(json.loads(files[name].read_text(encoding="utf-8")))
        except SightlineError as problem:
            found[name] = TextsRead(0, 0, (), str(problem))
        except (OSError, *UNUSABLE):
            continue
        tell(name)

    def done(name: str, texts: TextsRead) -> None:
        found[name] = texts
        if not texts.problem:
            remember(files[name], json.dumps(asdict(texts)).encode())
        tell(name)

    missing = [name for name in files if name not in found]
    if missing:
        _run(detector, root, missing, None, done, reads=True)
    return {name: found[name] for name in dict.fromkeys((*files, *found))}


def read_one(detector: Detector, root: Place, name: str) -> TextsRead:
    """What a detector reads in one image, in this process."""
    import numpy as np

    try:
        image = np.asarray(open_image(root, name))
    except SightlineError as problem:
        return TextsRead(0, 0, (), str(problem))
    return TextsRead(image.shape[1], image.shape[0], tuple(detector.read(image)))


def detect_one(detector: Detector, root: Place, name: str) -> Detected:
    """Runs a detector on one image, in this process."""
    import numpy as np

    image = np.asarray(open_image(root, name))
    started = time.perf_counter()
    findings = detector.find(image)
    ms = (time.perf_counter() - started) * 1e3
    boxes, outside = boxes_of(findings, image.shape[1], image.shape[0])
    return Detected(boxes, ms, outside)


def boxes_of(findings: Iterable[FoundText], width: int, height: int) -> tuple[tuple[Box, ...], int]:
    """Outlines in pixels -> upright boxes in fractions of the image, each once, and how many were no use."""
    boxes: list[Box] = []
    outside = 0
    for finding in findings:
        xs, ys = [x / width for x, _ in finding.outline], [y / height for _, y in finding.outline]
        if not xs or not all(math.isfinite(v) for v in (*xs, *ys)):
            outside += 1
            continue
        left, top, right, bottom = (min(max(v, 0.0), 1.0) for v in (min(xs), min(ys), max(xs), max(ys)))
        if left >= right or top >= bottom:
            outside += 1
            continue
        box = (left, top, right, bottom)
        if not any(max(abs(a - b) for a, b in zip(box, other, strict=True)) <= SAME for other in boxes):
            boxes.append(box)
    return tuple(boxes), outside


def _run(
    detector: str,
    root: Place,
    names: list[str],
    workers: int | None,
    done: Callable[[str, Any], None],
    *,
    reads: bool = False,
) -> None:
    """Hands images to worker processes one at a time, so that a slow page holds nobody up.

    Workers are plain child processes that talk over pipes: unlike a pool of forked or re-imported parents they work
    the same from a script, a notebook and a process that has already started CUDA.
    """
    count = min(workers or os.cpu_count() or 1, len(names))
    idle: SimpleQueue[_Worker] = SimpleQueue()
    started = [_Worker(detector, root, alone=count == 1, reads=reads) for _ in range(count)]
    for worker in started:
        idle.put(worker)

    def one(name: str) -> tuple[str, Detected | TextsRead]:
        worker = idle.get()
        try:
            return name, worker.ask(name)
        finally:
            idle.put(worker)

    threads = ThreadPoolExecutor(max_workers=count)
    try:
        for answer in as_completed([threads.submit(one, name) for name in names]):
            done(*answer.result())
    finally:
        threads.shutdown(cancel_futures=True)
        for worker in started:
            worker.close()


class _Worker:
    def __init__(self, detector: str, root: Place, *, alone: bool, reads: bool) -> None:
        self._reads = reads
        environment = dict(os.environ)
        if not alone:
            environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "sightline.boxes.detection", detector, str(root), *([READING] if reads else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            env=environment,
        )

    def ask(self, name: str) -> Detected | TextsRead:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(name) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            raise SightlineError(f"the text detector died on image {name!r}; try that image alone, or another detector")
        try:
            answer = json.loads(line)
            if "error" in answer:
                raise SightlineError(f"image {name!r}: {answer['error']}")
            return _texts(answer) if self._reads else _detected(answer)
        except UNUSABLE:
            raise SightlineError(
                f"the text detector answered {line[:80]!r} for image {name!r}; try another detector"
            ) from None

    def close(self) -> None:
        if self._process.stdin is not None:
            # Closing flushes; a worker that died left a line nobody will read, and its death is already reported.
            with suppress(OSError):
                self._process.stdin.close()
        self._process.terminate()
        self._process.wait()


def _detected(record: Mapping[str, Any]) -> Detected:
    """A stored result; a ``ValueError`` where it is not one that ``boxes_of`` gives."""
    boxes = tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in record["boxes"])
    found = Detected(boxes, float(record["ms"]), int(record["outside"]))
    inside = all(0.0 <= a < c <= 1.0 and 0.0 <= b < d <= 1.0 for a, b, c, d in boxes)
    if not inside or not 0.0 <= found.ms < math.inf or found.outside < 0:
        raise ValueError("no boxes within an image")
    return found


def _texts(record: Mapping[str, Any]) -> TextsRead:
    """A stored reading; a ``ValueError`` where it is none."""
    texts = tuple(
        FoundText(tuple((float(x), float(y)) for x, y in text["outline"]), float(text["confidence"]), str(text["text"]))
        for text in record["texts"]
    )
    numbers = [value for text in texts for value in (text.confidence, *(v for point in text.outline for v in point))]
    if not all(map(math.isfinite, numbers)) or not all(text.outline for text in texts):
        raise ValueError("no texts within an image")
    return TextsRead(int(record["width"]), int(record["height"]), texts, str(record.get("problem", "")))


def _read(file: Path) -> Detected | None:
    """A remembered result; a file that cannot be read counts as never written."""
    try:
        return _detected(json.loads(file.read_text(encoding="utf-8")))
    except (OSError, *UNUSABLE):
        return None


def main(detector: str, root: Place, task: str = "") -> None:
    """A worker process, ``python -m sightline.boxes.detection``: image names in, one line of JSON out for each."""
    # Libraries print what they like: answers go to the real standard output, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine = None
    for line in sys.stdin:
        try:
            engine = engine or detector_named(detector)()
            name = json.loads(line)
            answer = asdict((read_one if task == READING else detect_one)(engine, root, name))
        except Exception as problem:  # the parent turns it into one line for the user
            answer = {"error": first_line(problem)}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], place(sys.argv[2]), *sys.argv[3:])
