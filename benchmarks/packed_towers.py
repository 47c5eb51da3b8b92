"""A tower with windows on pages of mixed sizes: window by window, packed, and several pages in a call; in one process.

    python benchmarks/packed_towers.py [--pages 8] [--blocks 32] [--width 1280] [--repeats 3]

Qwen2.5-VL's vision tower with random weights of the published shape, which hands its attention the ends of windows.
Printed are milliseconds a page, calls of attention and operations of torch a page (each a kernel on a GPU), and the
largest difference from window by window as a share of the largest value. On a CPU take fewer ``--blocks`` and less
``--width``, in steps of 80.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers.models.qwen2_5_vl import modeling_qwen2_5_vl as qwen

from sightline.backbones.signals import blocks_of, packed

PATCH, MERGE = 14, 2
TOKENS = 979
"""Visual tokens of a page, about."""


class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operations by kind, views of what is there left out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not function.is_view:
            self.calls["attention" if "attention" in function.name() else "other"] += 1
        return function(*args, **(kwargs or {}))


def pages(count: int) -> list[tuple[int, int]]:
    """(rows, columns) of patches: portrait pages whose margins differ."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for share in (1.2 + 0.4 * torch.rand(count, generator=draw)).tolist():
        columns = round((TOKENS / share) ** 0.5)
        found.append((MERGE * round(TOKENS / columns), MERGE * columns))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=32)
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    shape = {"depth": options.blocks, "hidden_size": options.width, "intermediate_size": options.width * 171 // 64,
             "num_heads": options.width // 80, "out_hidden_size": 3584,
             "fullatt_block_indexes": list(range(7, options.blocks, 8))}  # fmt: skip
    config = qwen.Qwen2_5_VLConfig(vision_config=shape).vision_config
    torch.manual_seed(0)
    with torch.device(device):
        tower: Any = qwen.Qwen2_5_VisionTransformerPretrainedModel._from_config(
            config, dtype=dtype, attn_implementation="sdpa"
        )
    blocks = blocks_of(tower)
    grids = [torch.tensor([[1, *page]], device=device) for page in pages(options.pages)]
    values = [torch.randn(int(grid.prod()), 3 * 2 * PATCH**2, device=device, dtype=dtype) for grid in grids]
    apart = list(zip(values, grids, strict=True))
    together = [(torch.cat(values), torch.cat(grids))]
    ways: dict[str, tuple[Callable[[], AbstractContextManager[None]], list[Any]]] = {
        "window by window": (nullcontext, apart),
        "packed": (lambda: packed(blocks), apart),
        f"packed, {options.pages} pages a call": (lambda: packed(blocks), together),
    }

    def tokens(name: str) -> torch.Tensor:
        way, calls = ways[name]
        with torch.inference_mode(), way():
            return torch.cat([tower(*call).pooler_output for call in calls])

    def milliseconds(name: str) -> float:
        started = time.perf_counter()
        float(tokens(name)[0, 0])
        return (time.perf_counter() - started) * 1e3 / len(grids)

    expected = {name: tokens(name) for name in ways}["window by window"]
    times = [{name: milliseconds(name) for name in ways} for _ in range(options.repeats)]
    print(f"{options.pages} pages of about {TOKENS} tokens, {options.blocks} blocks, {dtype} on {device}")
    print(f"{'':26}{'ms a page':>10}{'ratio':>7}{'attention':>11}{'operations':>12}{'difference':>12}")
    for name in ways:
        with Counted() as counted:
            found = tokens(name)
        best, first = (min(each[which] for each in times) for which in (name, "window by window"))
        share = float((found - expected).abs().max() / expected.abs().max())
        attention, every = (count / options.pages for count in (counted.calls["attention"], counted.calls.total()))
        print(f"{name:26}{best:10.1f}{first / best:7.2f}{attention:11.0f}{every:12.0f}{share:12.1e}")


if __name__ == "__main__":
    main()
