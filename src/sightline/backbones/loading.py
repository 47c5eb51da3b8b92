"""From a folder or hub id to a backbone on a device: safetensors only, no remote code."""

from __future__ import annotations

import difflib
import hashlib
import json
import pickle
import re
import shutil
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import torch

from sightline.backbones import general_types
from sightline.backbones.base import BACKBONES, Backbone
from sightline.backbones.options import ImageOptions
from sightline.backbones.processors import image_settings
from sightline.errors import SightlineError
from sightline.places.writing import whole_path

DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
LITTLE = 8
"""Characters of a message that nobody understands by itself."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("sdpa", "eager")
WEIGHTS = "*.safetensors"
DESCRIPTION = ("*.json", "*.jinja", "*.txt", "*.model")
"""What a checkpoint has beside its weights: configuration, image processor, tokenizer, chat template."""


def checkpoint_folder(source: str, weights: str = WEIGHTS) -> Path:
    """The local folder of a checkpoint; a hub id is fetched (config, tokenizer and safetensors files only).

    ``org/name@REVISION`` is a commit, tag or branch of it. ``weights`` are the weight files to fetch, where others are
    meant.
    """
    folder = Path(source)
    if folder.is_dir():
        return folder
    given, (source, _, revision) = source, source.partition("@")
    if revision and Path(source).is_dir():
        raise SightlineError(f"{source} is a local folder, which has no revision '{revision}'")
    folder = Path(source)
    # "models/typo" reads like a hub id, but where there is a folder models it is a slip.
    if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") != 1 or folder.parent.is_dir():
        raise SightlineError(
            f"model folder {given} does not exist{_similar(folder)}; give a local folder or a hub id such as org/name"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision or None, allow_patterns=[*DESCRIPTION, weights]))
    except Exception as error:
        raise SightlineError(
            f"there is no folder {source} here, and as a hub id it cannot be fetched"
            f"{f' at {revision}' if revision else ''} ({type(error).__name__}); give a local folder instead"
        ) from error


def snapshot_revision(folder: Path) -> str | None:
    """The commit of a checkpoint that came from a hub; None of a folder of somebody's own."""
    return folder.name if folder.parent.name == "snapshots" else None


def _similar(folder: Path) -> str:
    """A folder beside the one named, for somebody who mistyped."""
    beside = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
    close = difflib.get_close_matches(folder.name, beside, n=1)
    return f"; did you mean {folder.parent / close[0]}?" if close else ""


def described(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint folder."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SightlineError(f"{folder} has no config.json: it is not a checkpoint folder") from None
    except OSError as error:
        raise SightlineError(f"{folder / 'config.json'} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{folder / 'config.json'} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise SightlineError(f"{folder / 'config.json'} does not describe a model: it is no JSON object")
    for name, part in config.items():
        if name.endswith("_config") and not isinstance(part, dict | None):
            raise SightlineError(f"{folder / 'config.json'} does not describe a model: {name} is no JSON object")
    return config


def model_type(folder: Path) -> str:
    """What a checkpoint calls its architecture; refused by name and reason if nothing here can audit it."""
    config = described(folder)
    kind = str(config.get("model_type") or "")
    if not kind:
        raise SightlineError(
            f"{folder.name}: config.json names no model_type, so that nothing tells what loads it; fetch the whole "
            "checkpoint in the form that transformers reads"
        )
    try:
        backbone_class(kind)
    except SightlineError as error:
        raise SightlineError(f"{folder.name} is a '{kind}' model: {general_types.foreign(config) or error}") from None
    return kind


def backbone_class(kind: str, folder: Path | None = None) -> type[Backbone]:
    """The architecture registered for a ``model_type``, else the general route if the type's class can be tried.

    With the ``folder`` of a checkpoint, one that its type's own file cannot serve takes the general route too.
    """
    if kind in BACKBONES and (folder is None or declined(kind, folder) is None):
        return BACKBONES.get(kind)
    from sightline.backbones.general import General

    reason = general_types.refusal(general_types.model_class(kind))
    if reason is not None:
        raise SightlineError(f"{reason}; Sightline has files for {', '.join(BACKBONES.names())}")
    return General


def declined(kind: str, folder: Path) -> str | None:
    """Why the architecture registered for a ``model_type`` cannot serve this checkpoint; None where it can."""
    try:
        images = dict(image_settings(folder))
    except (OSError, ValueError, TypeError, AttributeError):  # whoever loads the image processor says what is wrong
        images = {}
    reason = BACKBONES.get(kind).declines(described(folder), images)
    return None if reason is None else f"not {BACKBONES.get(kind).__name__}: {reason}"


def weight_files(folder: Path, source: str = "") -> list[Path]:
    """``source`` is what the user called the checkpoint, where that is not its folder."""
    files = sorted(folder.glob(WEIGHTS))
    if not files:
        name = source or folder
        raise SightlineError(
            f"{name} has no *.safetensors weights, and pickle files are not loaded; "
            f"`sightline convert {name} --out NEW_FOLDER` makes safetensors of its pytorch_model.bin"
        )
    return files


def weight_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of all safetensors files: what the weights are, wherever they lie."""
    digest = hashlib.sha256()
    files = weight_files(folder)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        for file, content in zip(files, pool.map(_file_digest, files), strict=True):
            digest.update(file.name.encode())
            digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def description_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint that are not weights.

    Which of them are read depends on the tokenizer and on the version of transformers: all are taken, so that none is
    missed.
    """
    return _digests(file for pattern in DESCRIPTION for file in folder.glob(pattern))


def subfolder_digests(folder: Path) -> dict[str, str]:
    """The same of files below it, by path: chat templates, tokenizers and processors that libraries find there.

    Hidden folders and checkpoints of their own, such as those of a training, are nobody's description.
    """
    found: dict[str, str] = {}
    for below in sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        if not ((below / "config.json").exists() and any(below.glob(WEIGHTS))):
            own = {**description_digests(below), **subfolder_digests(below)}
            found |= {f"{below.name}/{name}": digest for name, digest in own.items()}
    return found


def checkpoint_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint, its weights included."""
    return {**description_digests(folder), **_digests(weight_files(folder))}


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {file.name: f"sha256:{_file_digest(file).hex()}" for file in sorted(files)}


def _file_digest(file: Path) -> bytes:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").digest()


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not DEVICE.fullmatch(name):
        raise SightlineError(f"unknown --device '{name}'; choose auto, cpu, cuda or a numbered one such as cuda:1")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SightlineError("--device cuda was asked for but torch sees no GPU; use --device cpu")
    if device.index is not None and device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise SightlineError(f"--device {name} does not exist; the last one is cuda:{torch.cuda.device_count() - 1}")
    return device


def choose_dtype(name: str, folder: Path) -> torch.dtype:
    """``auto`` is the dtype the checkpoint was saved in."""
    if name == "auto":
        config = described(folder)
        name = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if name not in DTYPES:
        raise SightlineError(f"unknown dtype '{name}'; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def options_for(
    architecture: str | Path,
    profile: Literal["paper", "artifact"] = "paper",
    given: Mapping[str, Any] | ImageOptions | None = None,
) -> ImageOptions:
    """Image options of a ``model_type``, or of the checkpoint in a folder: those given, above those of the profile.

    None is a value like any other: it asks for the checkpoint's own way where the profile has another.
    """
    folder = architecture if isinstance(architecture, Path) else None
    name = str(architecture) if folder is None else model_type(folder)
    kind = backbone_class(name, folder).image_options
    if isinstance(given, ImageOptions):
        if not isinstance(given, kind):
            raise SightlineError(f"{name} takes {kind.__name__}, not {type(given).__name__}")
        return given
    usual = kind.artifact if profile == "artifact" else {}
    try:
        return kind.of({**usual, **(given or {})}, name)
    except SightlineError as error:
        sets = ", ".join(f"{key}={value}" for key, value in usual.items())
        raise SightlineError(f"{error} (the profile sets {sets})" if sets else str(error)) from None


def load_backbone(
    source: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    attention: str = "sdpa",
    options: Mapping[str, Any] | ImageOptions | None = None,
) -> Backbone:
    """Loads a checkpoint of a known architecture.

    ``attention`` is ``sdpa`` (fast) or ``eager``. ``options`` are the architecture's image options, by name or as made
    by ``options_for``; they are checked before any weights are read.
    """
    if attention not in ATTENTION:
        raise SightlineError(f"unknown attention kernel '{attention}'; choose one of {', '.join(ATTENTION)}")
    folder = checkpoint_folder(source)
    kind = model_type(folder)
    backbone = backbone_class(kind, folder)
    chosen = options_for(folder, given=options)
    weight_files(folder, source)
    place, precision = choose_device(device), choose_dtype(dtype, folder)
    if precision == torch.float32:
        # float32 means float32: a GPU's convolutions would otherwise round the patches to ten bits.
        torch.backends.cudnn.allow_tf32 = False
    try:
        loaded = backbone.load(
            str(folder),
            dtype=precision,
            device=place,
            attention=attention,
            options=chosen,
        )
    except SightlineError:
        raise
    except Exception as error:  # every library that reads a file of the checkpoint has errors of its own
        raise SightlineError(f"cannot load {folder.name}: {first_words(error)}") from error
    if kind in BACKBONES and not isinstance(loaded, BACKBONES.get(kind)):
        loaded.instead = declined(kind, folder)
    return loaded


def first_words(error: Exception) -> str:
    """What an error of another library says, on one line; its name where it says little."""
    said = " ".join(str(error).split("\n")[:2]).strip()
    return said if len(said) > LITTLE and not isinstance(error, LookupError) else f"{type(error).__name__} {said}"


# A checkpoint whose weights are a pickle, written anew as safetensors: pickles can run code, so none is audited.

PICKLED = "pytorch_model*.bin"
CONVERTED = "model.safetensors"


def convert(source: str, out: Path) -> Path:
    """Writes the checkpoint ``source``, a folder or hub id, to the new folder ``out`` with safetensors weights.

    The pickle is opened for tensors alone (``weights_only``); one that holds anything else is refused. All other files
    are copied as they are.
    """
    from safetensors.torch import save_file

    folder = checkpoint_folder(source, weights=PICKLED)
    files = sorted(folder.glob(PICKLED))
    if not files:
        has = "it has safetensors already" if any(folder.glob(WEIGHTS)) else f"it has no {PICKLED}"
        raise SightlineError(f"{source} cannot be converted: {has}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SightlineError(f"{out} exists and is not empty; name a new folder with --out")
    # Clones, because a file of safetensors holds every tensor by itself, tied ones too.
    tensors = {name: tensor.clone().contiguous() for file in files for name, tensor in _tensors(file).items()}
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(file for pattern in DESCRIPTION for file in folder.glob(pattern)):
        if not file.name.startswith("pytorch_model"):  # the list of pickled parts
            shutil.copyfile(file, out / file.name)
    with whole_path(out / CONVERTED) as unfinished:
        save_file(tensors, unfinished, metadata={"format": "pt"})
    return out


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise SightlineError(f"{file.name} is not a plain file of tensors: {str(error).splitlines()[0]}") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise SightlineError(f"{file.name} is not a plain file of tensors: it holds something else")
    return found
