"""Attention of one language layer by library and own kernels, causal and for answer branches; what a new shape costs.

python benchmarks/attention.py

Needs a Hopper GPU and Triton. Microseconds are medians of captured calls in bfloat16.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from sightline.backbones.attention import library_causal, library_masked, own_causal, own_masked
from sightline.device.graphs import capture
from sightline.device.work import Stopwatch

CUDA = torch.device("cuda")
SHAPES = {
    "Qwen": [(39, 829, 32, 8), (90, 360, 32, 8), (160, 202, 32, 8), (1, 829, 32, 8), (1, 202, 32, 8)],
    "InternVL": [(1, 3373, 32, 8), (1, 1709, 32, 8)],
    "LLaVA": [(50, 621, 32, 32), (1, 621, 32, 32), (1, 276, 32, 32)],
}
"""(sequences, length, heads, key heads) of 128 numbers each."""
BRANCHES = {"Qwen": [(39, 837, 32, 8), (160, 210, 32, 8)], "LLaVA": [(50, 629, 32, 32)]}
ROWS = 8
"""Of the sequence, the last ones: those of the answer branches."""
CALLS, REPEATS = 10, 12


def states(batch: int, length: int, heads: int, shared: int) -> list[Tensor]:
    joined = torch.randn(batch, length, heads + 2 * shared, 128, device=CUDA, dtype=torch.bfloat16)
    return [part.transpose(1, 2) for part in joined.split([heads, shared, shared], dim=2)]  # type: ignore[no-untyped-call]


def by(backend: SDPBackend, call: Callable[..., Tensor] = library_causal) -> Callable[..., Tensor]:
    def attend(*given: Tensor) -> Tensor:
        with sdpa_kernel(backend):
            return call(*given, None)

    return attend


WAYS: dict[str, Callable[..., Tensor]] = {
    "cuDNN": by(SDPBackend.CUDNN_ATTENTION),
    "own": partial(own_causal, scaling=None),
    "flash": by(SDPBackend.FLASH_ATTENTION),
}


MASKED_WAYS: dict[str, Callable[..., Tensor]] = {
    "cuDNN": by(SDPBackend.CUDNN_ATTENTION, library_masked),
    "own": partial(own_masked, scaling=None),
    "memory-efficient": by(SDPBackend.EFFICIENT_ATTENTION, library_masked),
}


def branch_states(batch: int, length: int, heads: int, shared: int) -> list[Tensor]:
    """Queries of the last rows, all keys and values, and a mask by which half of the rows miss the other half."""
    query, key, value = states(batch, length, heads, shared)
    mask = torch.zeros(batch, 1, ROWS, length, device=CUDA, dtype=torch.bfloat16)
    mask[:, :, : ROWS // 2, length - ROWS // 2 :] = torch.finfo(mask.dtype).min
    return [query[:, :, -ROWS:], key, value, mask]


def microseconds(attend: Callable[..., Tensor], given: list[Tensor]) -> float:
    replay, _ = capture(lambda: [attend(*given) for _ in range(CALLS)], CUDA)
    samples = []
    for _ in range(REPEATS):
        watch = Stopwatch(CUDA, shared_by=CALLS)
        replay()
        watch.stop()
        samples.append(watch.ms * 1e3)
    return statistics.median(samples)


@torch.inference_mode()
def main() -> None:
    for kind, shapes_of, make, ways in (
        ("causal", SHAPES, states, WAYS),
        (f"last {ROWS} rows", BRANCHES, branch_states, MASKED_WAYS),
    ):
        for model, shapes in shapes_of.items():
            for shape in shapes:
                given = make(*shape)
                times = ", ".join(f"{name} {microseconds(attend, given):.1f}" for name, attend in ways.items())
                print(f"{kind}, {model} {shape[0]} x {shape[1]}: {times} us", flush=True)
    for length in range(300, 304):
        given = states(8, length, 32, 8)
        firsts = []
        for name, attend in WAYS.items():
            torch.cuda.synchronize()
            started = time.perf_counter()
            attend(*given)
            torch.cuda.synchronize()
            firsts.append(f"{name} {(time.perf_counter() - started) * 1e3:.1f}")
        print(f"first call at 8 x {length}: {', '.join(firsts)} ms", flush=True)


if __name__ == "__main__":
    main()
