"""A checkpoint whose weights are a pickle, written anew as safetensors: pickles can run code, so none is audited."""

from __future__ import annotations

import pickle
import shutil
from pathlib import Path

import torch

from sightline.backbones.loading import DESCRIPTION, WEIGHTS, checkpoint_folder
from sightline.errors import SightlineError
from sightline.places.writing import whole_path

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
