"""How many Triton kernels pages of mixed sizes need: each is compiled, or loaded, the first time it is launched.

    python benchmarks/kernel_variants.py [--pages 24] [--compile]

A kernel is made anew for whatever its compiler takes for a constant: a width, and of a plain number whether it is one
or a multiple of 16. The launches of selectors and of attention are gone through for pages of 500 to 1,300 tokens, four
budgets and batches of one and of several, as a GPU of compute capability 9.0 would see them. Nothing runs, so no GPU is
needed; ``--compile`` compiles every kernel for it and says how long that takes.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import torch

from sightline.device import kernels as attention
from sightline.selectors import greedy, scores

PROCESSORS = 132
BUDGETS = (0.1, 0.2, 0.3, 0.5)
HEADS, SHARED, WIDTH = 32, 8, 128


class NoDevice:
    """What Triton asks of a driver before it compiles."""

    def get_current_device(self) -> int:
        return -1  # no other is called so: what is found here is kept apart

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def select_all(n: int, k: int, images: int) -> None:
    """Every kernel of a selector once, over ``images`` pages of n tokens of which k are kept."""
    square, row = torch.empty(images, n, n), torch.empty(images, n)
    seeds = torch.zeros(images, 1, dtype=torch.long)
    greedy.launch_farthest(square, row, seeds, seeds[:, 0], 1.0, k)
    for first in (None, seeds[:, 0]):
        greedy.launch_residual(square, row.double(), row.double(), row.double(), 1.0, True, first, k)
    greedy.launch_cover(square, row.double(), row.double(), k)
    scores._launch_alignment(torch.empty(n, 64), torch.empty(4, 64), 2, 1e-12)


def attend_all(length: int, images: int, rows: int = 4) -> None:
    """Every kernel of attention once, over prefixes of ``length`` tokens that end in ``rows`` of answers."""
    query = torch.empty(images, HEADS, length, WIDTH, dtype=torch.bfloat16)
    shared = torch.empty(images, SHARED, length, WIDTH, dtype=torch.bfloat16)
    attention.causal_attention._init_fn(query, shared, shared, 0.1)
    mask = torch.empty(images, 1, rows, length, dtype=torch.bfloat16)
    attention.masked_attention._init_fn(query[:, :, -rows:], shared, shared, mask, 0.1)
    lengths = torch.empty(images, dtype=torch.int32)
    attention.slot_attention._init_fn(query[:, :, :1], shared[:, :, :1], shared[:, :, :1], shared, shared, lengths, 0.1)


def needed(sizes: Sequence[int], compiled: bool = False) -> tuple[dict[str, set[str]], float]:
    """Per kernel its variants for pages of these numbers of tokens, and seconds that compiling them took."""
    import triton

    found: dict[str, set[str]] = defaultdict(set)
    seconds = 0.0

    def compiling(function: Any, key: str, *rest: Any) -> None:
        nonlocal seconds
        name = function.fn.__name__
        if key in found[name]:
            return
        found[name].add(key)
        if compiled:
            signature, _, constexprs, options, attrs, _ = rest
            started = time.perf_counter()
            source = triton.compiler.ASTSource(function, signature, constexprs, attrs)
            triton.compile(source, target=NoDevice().get_current_target(), options=options.__dict__)
            seconds += time.perf_counter() - started

    with (
        patch.object(triton.runtime.driver, "_active", NoDevice()),
        patch.object(triton.JITFunction, "_do_compile", compiling),
        patch.object(greedy, "_processors", lambda device: PROCESSORS),
    ):
        for n in sizes:
            for images in (1, 4):
                for share in BUDGETS:
                    select_all(n, round(share * n), images)
                    attend_all(round(share * n) + 47, images)
    return found, seconds


def mixed(pages: int) -> list[int]:
    """Numbers of tokens of so many pages, all different."""
    draw = torch.Generator().manual_seed(0)
    return (500 + torch.randperm(800, generator=draw)[:pages]).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=24)
    parser.add_argument("--compile", action="store_true", help="compile them, into a folder that is new")
    options = parser.parse_args()
    counts = sorted({1, options.pages // 8 or 1, options.pages})
    for pages in counts:
        found, seconds = needed(mixed(pages), options.compile and pages == counts[-1])
        each = ", ".join(f"{name} {len(variants)}" for name, variants in sorted(found.items()))
        took = f", compiled in {seconds:.1f} s" if seconds else ""
        print(f"{pages:4} sizes: {sum(map(len, found.values()))} kernels{took} ({each})")


if __name__ == "__main__":
    main()
