"""Heads with drawn weights, for methods that cannot do without one."""

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save_file

from sightline.cost.selection import HEADS, VISION, WIDTH
from sightline.selectors import SELECTORS
from sightline.selectors.glimpseprune import LLAVA

HEADED = tuple(name for name, kind in SELECTORS.items() if kind.needs_file == "head")
DRAWN = {
    "width": WIDTH, "attention heads": HEADS, "width of the vision tower": VISION, "layers": 32,
    "query size": 2 * WIDTH // HEADS, "key size": WIDTH // HEADS,
}  # fmt: skip
"""Sizes of the inputs that methods are tried on without a model."""


def drawn_head(name: str, path: Path, sizes: Mapping[str, int] = DRAWN, seed: int = 0) -> Path:
    """A head of one layer for a model of these sizes."""
    own = {"inner size": 16, "fuser size": 8, "condition size": 8, "both sizes": 16, **sizes}
    source = torch.Generator().manual_seed(seed)
    kind: Any = SELECTORS.get(name)
    tensors = {}
    for part, wanted in kind.parts.items():
        shape = [size if isinstance(size, int) else own[size] for size in wanted]
        drawn = torch.randn(shape, generator=source) * 0.1 + float("norm" in part)
        tensors[kind.prefixes[-1] + part.format(0, last=0)] = drawn.half()
    cut, layers = own["layers"] // 2, own["layers"]
    settings = LLAVA | {"reduce_layer": cut, "selected_layers": [cut], "le_layers": list(range(layers))}
    settings |= {"selected_visual_layers": [2], "attn_fuse_num_heads": 2}
    save_file(tensors, path, {"config": json.dumps(settings)})
    return path


@cache
def _folder() -> TemporaryDirectory[str]:
    return TemporaryDirectory()


@cache
def made(name: str) -> Any:
    """A method with its default arguments, and a head for drawn inputs where it needs one."""
    kind: Any = SELECTORS.get(name)
    if name not in HEADED:
        return kind()
    return kind(head=str(drawn_head(name, Path(_folder().name) / f"{name}.safetensors")))
