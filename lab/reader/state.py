"""Training state on disk: bfloat16 weights and second moments in shards of at most 15 MiB, and a JSON of progress."""

from __future__ import annotations

import json
import secrets
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from lab.reader import vocabulary
from sightline.errors import SightlineError
from sightline.places.writing import write_whole

SHARD_BYTES = 15 * 2**20


def save_state(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any]) -> None:
    """Writes ``state-*.safetensors`` and ``state.json``. First moments are not kept: they are back within ten steps.

    A kill leaves the state before or this one, whole: ``state.json`` names the shards and is replaced in one step.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, Tensor] = {}
    for name, parameter in module.named_parameters():
        tensors[f"weight.{name}"] = parameter.detach()
        if "exp_avg_sq" in optimizer.state.get(parameter, {}):
            tensors[f"second.{name}"] = optimizer.state[parameter]["exp_avg_sq"]
    shards: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size + 2 * tensor.numel() > SHARD_BYTES:
            shards.append({})
            size = 0
        shards[-1][name] = tensor.to(torch.bfloat16).cpu().contiguous()
        size += 2 * tensor.numel()
    before, name = set(folder.glob("state-*.safetensors")), secrets.token_hex(4)
    for number, shard in enumerate(shards):
        save_file(shard, _shard_file(folder, name, number))
    write_whole(folder / "state.json", json.dumps(progress | {"shards": len(shards), "save": name}).encode())
    for file in before:
        file.unlink(missing_ok=True)


def _shard_file(folder: Path, save: str, number: int) -> Path:
    """Every save has names of its own, so that shards of two are never taken for one; the first ones had none."""
    return folder / f"state-{save}{'-' if save else ''}{number:02d}.safetensors"


def read_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors, and the progress record."""
    try:
        progress = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = {}
        for number in range(progress["shards"]):
            tensors |= load_file(_shard_file(folder, str(progress.get("save", "")), number))
    except (OSError, ValueError, KeyError, TypeError, AttributeError, SafetensorError, RecursionError) as problem:
        raise SightlineError(
            f"{folder}: no complete training state ({problem}); give the --out of an earlier leg"
        ) from None
    return tensors, progress


def load_weights(tensors: dict[str, Tensor], module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        parameter.data.copy_(_grown(name, tensors[f"weight.{name}"]))


def load_checkpoint(folder: Path, model: nn.Module) -> None:
    """Weights of an exported checkpoint into ``model``."""
    file = folder / "model.safetensors"
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as problem:
        raise SightlineError(f"{file} cannot be read ({problem}); give an exported checkpoint to --start") from None
    for name, parameter in model.named_parameters():
        tensor = _grown(name, tensors[name]) if name in tensors else None
        if tensor is None or tensor.shape != parameter.shape:
            raise SightlineError(f"{file} does not fit: {name} should be {list(parameter.shape)}; check --preset")
        parameter.data.copy_(tensor)


def _grown(name: str, tensor: Tensor) -> Tensor:
    """The tensor, or where it is an embedding from before open questions, (V, D), with rows for their phrases below.

    Each phrase begins as a copy of what stands in its place in a yes/no prompt.
    """
    if not name.endswith("embed_tokens.weight"):
        return tensor
    missing = range(len(tensor), vocabulary.VOCABULARY_SIZE)
    return torch.cat((tensor, tensor[[vocabulary.MODELLED_ON.get(token, vocabulary.HEAD) for token in missing]]))


def load_moments(tensors: dict[str, Tensor], module: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Second moments as saved, first moments zero; ``steps`` keeps AdamW's bias correction from starting over."""
    for name, parameter in module.named_parameters():
        second = tensors.get(f"second.{name}")
        if second is not None:
            optimizer.state[parameter] = {
                "step": torch.tensor(float(steps), device=parameter.device),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": _grown(name, second).to(parameter),
            }
