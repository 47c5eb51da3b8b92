"""Training state on disk: bfloat16 weights and second moments in shards of at most 15 MiB, and a JSON of progress."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from sightline.errors import SightlineError
from sightline.reader import vocabulary

SHARD_BYTES = 15 * 2**20


def save_state(folder: Path, module: nn.Module, optimizer: torch.optim.Optimizer, progress: dict[str, Any]) -> None:
    """Writes ``state-*.safetensors`` and ``state.json``. First moments are not kept: they are back within ten steps."""
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
    for number, shard in enumerate(shards):
        file = folder / f"state-{number:02d}.safetensors"
        save_file(shard, file.with_suffix(".part"))
        os.replace(file.with_suffix(".part"), file)
    part = folder / "state.json.part"
    part.write_text(json.dumps(progress | {"shards": len(shards)}), encoding="utf-8")
    os.replace(part, folder / "state.json")


def read_state(folder: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """All tensors, and the progress record."""
    try:
        progress = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        tensors: dict[str, Tensor] = {}
        for number in range(progress["shards"]):
            tensors |= load_file(folder / f"state-{number:02d}.safetensors")
    except (OSError, ValueError, KeyError) as problem:
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
