"""Trained heads: what a method cannot do without and somebody trained for one model, from a user's safetensors file.

The header alone says whether a file is the right one: names and shapes are checked before a model is loaded, and
against the sizes that its configuration tells. Numbers are read when the method first chooses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import count, takewhile
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from sightline.core.selection import Method
from sightline.errors import SightlineError, first_line

Parts = dict[str, tuple[str | int, ...]]
"""Tensor -> its shape; sizes with one name are equal. ``{}`` in a name counts layers from 0, ``{last}`` is the last."""
HELP = "docs/methods.md says how a head is exported"


def biased(name: str, out: str | int, into: str | int) -> Parts:
    """A projection with its bias."""
    return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}


class HeadFile(NamedTuple):
    """What the header of a file says."""

    names: Mapping[str, str]
    """Tensors of the method -> what the file calls them."""
    sizes: Mapping[str, int]
    layers: int
    settings: Mapping[str, Any]
    """The configuration that the head was trained with, as its exporter stored it under ``config``; empty without."""


@dataclass(frozen=True)
class Headed(Method):
    """A method with a trained head, which an arm names: ``head=FILE``."""

    head: str
    """Safetensors file with the trained parts."""

    needs_file: ClassVar[str] = "head"
    parts: ClassVar[Parts]
    prefixes: ClassVar[tuple[str, ...]] = ("",)
    """What tensor names may begin with, as a checkpoint holds the head among other things."""

    @property
    def opened(self) -> HeadFile:
        """The file's header; refused where the file is not this method's."""
        return _opened(type(self), *_written(self.head, self.name))

    @classmethod
    def unusable(cls, head: HeadFile) -> str:
        """Why the method cannot use a file whose tensors are as they should be, by its settings; empty where it can."""
        return ""

    def tensors(self, like: Tensor) -> dict[str, Tensor]:
        """Every part by name, on the device of ``like`` and in its precision."""
        path, written = _written(self.head, self.name)
        return _loaded(type(self), path, written, str(like.device), like.dtype)

    def check_probes(self, probe_ids: Iterable[str]) -> None:
        self.opened  # noqa: B018

    def head_mismatch(self, sizes: Mapping[str, int]) -> str | None:
        if "head" not in vars(self):
            return None  # made to be listed
        own = self.opened.sizes
        for size in sorted(sizes.keys() & own.keys()):
            if sizes[size] != own[size]:
                return f"{self.head} was trained for a model whose {size} is {own[size]}, here it is {sizes[size]}"
        return None

    def digest(self) -> str:
        """SHA-256 of the file."""
        return _digest(*_written(self.head, self.name))


def _written(head: str, name: str) -> tuple[str, int]:
    """The file and when it was written: one that has changed is read again."""
    try:
        return head, Path(head).stat().st_mtime_ns
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SightlineError(f"{name}: cannot read {head}: {reason}; name the trained head with head=FILE") from None


@lru_cache(maxsize=16)
def _opened(kind: type[Headed], head: str, written: int) -> HeadFile:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(head, framework="pt") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
            shapes = {name: tuple(part.get_shape()) for name, part in slices.items()}
            types = {name: part.get_dtype() for name, part in slices.items()}
            settings = json.loads((file.metadata() or {}).get("config", "{}"))
    except (SafetensorError, OSError) as error:
        reason = "it is a folder" if Path(head).is_dir() else first_line(error)
        raise SightlineError(f"{kind.name}: {head} is not a safetensors file ({reason}); {HELP}") from None
    except ValueError:
        raise SightlineError(f"{kind.name}: the config in the header of {head} is not JSON; {HELP}") from None
    first = next(iter(kind.parts)).format(0)
    prefix = next((each for each in kind.prefixes if each + first in shapes), kind.prefixes[0])
    repeated = next((part for part in kind.parts if "{}" in part), "")
    layers = len(list(takewhile(lambda i: prefix + repeated.format(i) in shapes, count()))) if repeated else 0
    sizes: dict[str, int] = {}
    names = {}
    for part, wanted in kind.parts.items():
        last = max(layers, 1)
        for own in [part.format(i) for i in range(last)] if "{}" in part else [part.format(last=last - 1)]:
            names[own] = prefix + own
            if names[own] not in shapes:
                few = ", ".join(sorted(shapes)[:3]) + (", ..." if len(shapes) > 3 else "") or "none"
                raise SightlineError(f"{kind.name}: {head} has no tensor {names[own]} (it has {few}); {HELP}")
            _unify(sizes, wanted, shapes[names[own]], f"{kind.name}: {names[own]} of {head}")
            if not types[names[own]].startswith(("F", "BF")):
                raise SightlineError(
                    f"{kind.name}: {names[own]} of {head} is stored as {types[names[own]]}, which are no plain "
                    f"floating-point weights; {HELP}"
                )
    found = HeadFile(names, sizes, layers, settings if isinstance(settings, dict) else {})
    if refusal := kind.unusable(found):
        raise SightlineError(f"{kind.name}: {head} {refusal}; {HELP}")
    return found


def _unify(sizes: dict[str, int], wanted: tuple[str | int, ...], shape: tuple[int, ...], what: str) -> None:
    """Names of sizes get their values from the first tensor that has them; every other one must agree."""
    if len(wanted) == len(shape):
        for name, size in zip(wanted, shape, strict=True):
            if isinstance(name, str):
                sizes.setdefault(name, size)
    if tuple(sizes.get(str(name), name) for name in wanted) != shape:
        known = ", ".join(f"{name} = {sizes[str(name)]}" for name in wanted if str(name) in sizes)
        form = " x ".join(map(str, wanted)) + (f" with {known}" if known else "")
        raise SightlineError(f"{what} is {' x '.join(map(str, shape))}, and not {form}")


@lru_cache(maxsize=4)
def _loaded(kind: type[Headed], head: str, written: int, device: str, dtype: torch.dtype) -> dict[str, Tensor]:
    from safetensors import safe_open

    names = _opened(kind, head, written).names
    with safe_open(head, framework="pt", device=device) as file:
        loaded = {own: file.get_tensor(name).to(dtype) for own, name in names.items()}
    # Scores made of such a weight would all be NaN, and the tokens that rank first the first ones of the image.
    if broken := [names[own] for own, weights in loaded.items() if not torch.isfinite(weights).all()]:
        raise SightlineError(f"{kind.name}: {broken[0]} of {head} has weights that are not finite in {dtype}")
    return loaded


@lru_cache(maxsize=16)
def _digest(head: str, written: int) -> str:
    with open(head, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# What heads are made of.


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (..., S, d) states: x cos + rotate_half(x) sin."""
    half = states.shape[-1] // 2
    turned = torch.cat([-states[..., half:], states[..., :half]], dim=-1)
    return states * cos + turned * sin


def rms_norm(states: Tensor, weight: Tensor, eps: float) -> Tensor:
    """w * x / sqrt(mean(x^2) + eps) over the last dimension, the quotient in float32."""
    exact = states.float()
    return weight * (exact * torch.rsqrt(exact.square().mean(-1, keepdim=True) + eps)).to(states.dtype)


def split_heads(states: Tensor, width: int) -> Tensor:
    """(S, H d) -> (H, S, d)"""
    return states.view(states.shape[0], -1, width).transpose(0, 1)
