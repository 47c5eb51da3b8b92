"""The greedy GPU kernels: the CPU's picks from the same matrices, and how their launch shapes compare.

    PYTHONPATH=src python benchmarks/selector_kernels.py [OUT.json [METHOD ...]]

Then every method at N = 576 (keep 0.4) on the GPU, alone and 32 at a time, with whether it chose the CPU's tokens.
Needs a CUDA device and Triton. Every sample goes to OUT.json.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from sightline.cost.selection import Inputs, time_method, timed_methods
from sightline.selectors import greedy

SIZES = ((1, 576), (32, 576), (1, 2500))
CHECKED = 2
"""Images of a batch whose picks are compared with the CPU's."""
FIRST = ("target", "anchorprune", "scope", "coin")


def median_ms(work: Callable[[], torch.Tensor], repeats: int = 9) -> float:
    samples = []
    for _ in range(repeats + 2):
        torch.cuda.synchronize()
        started = time.perf_counter()
        work()
        torch.cuda.synchronize()
        samples.append((time.perf_counter() - started) * 1e3)
    return statistics.median(samples[2:])


def time_kernels(images: int, n: int) -> None:
    k = -(-2 * n // 5)
    drawn = [Inputs(n, torch.device("cpu"), seed).features(n, 256) for seed in range(images)]
    similarity = greedy.cosines(torch.stack(drawn).cuda())
    weight = torch.rand(images, n, generator=torch.Generator().manual_seed(0))
    seeds, counts = weight.argmax(dim=1, keepdim=True), torch.ones(images, dtype=torch.long)
    zero, one = torch.zeros(images, n), torch.ones(images, n).double()
    bias = 0.1 * weight.double()

    def report(name: str, work: Callable[[], torch.Tensor], expected: torch.Tensor) -> None:
        same = torch.equal(work()[:CHECKED].cpu(), expected)
        print(
            f"{images:3} x {n:5}  {name:16} {'same picks' if same else 'OTHER PICKS':12} {median_ms(work):9.3f} ms",
            flush=True,
        )

    few = [part[:CHECKED] for part in (similarity.cpu(), weight, zero, one, bias, seeds, counts)]
    s, w, z, o, b, first, count = few
    weight, zero, one, bias, seeds, counts = (part.cuda() for part in (weight, zero.double(), one, bias, seeds, counts))
    expected = greedy.farthest_greedy(s, w, first, count, 1.0, k)
    report("farthest", lambda: greedy.launch_farthest(similarity, weight, seeds, counts, 1.0, k), expected)
    expected = greedy.residual_greedy(s, o, b, k, first[:, 0], 0.9, rooted=True)
    for smallest in (8, 16, 32) if (images, n) == SIZES[0] else (greedy.SMALLEST_RESIDUAL,):

        def residual(size: int = smallest) -> torch.Tensor:
            return greedy.launch_residual(similarity, one, one * 1e-8, bias, 0.9, True, seeds[:, 0], k, size)

        report(f"residual {smallest}", residual, expected)
    expected = greedy.cover_greedy(s, w, z, k)
    for smallest in (8, 16) if (images, n) == SIZES[0] else (greedy.SMALLEST_COVER,):

        def cover(size: int = smallest) -> torch.Tensor:
            return greedy.launch_cover(similarity, weight.double(), zero, k, size)

        report(f"cover {smallest}", cover, expected)


def main() -> None:
    print(torch.__version__, torch.cuda.get_device_name())
    for images, n in SIZES:
        time_kernels(images, n)
    records = []
    for name in sys.argv[2:] or (*FIRST, *(name for name in timed_methods() if name not in FIRST)):
        for batch in (1, 32):
            timing = time_method(name, 576, batch, torch.device("cuda"), repeats=9)
            records.append(timing.record())
            print(
                f"{name:22} batch {batch:<3} {timing.median:9.3f} ms  same tokens as CPU: {timing.same_as_cpu}",
                flush=True,
            )
            if len(sys.argv) > 1:
                Path(sys.argv[1]).write_text(json.dumps(records, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
