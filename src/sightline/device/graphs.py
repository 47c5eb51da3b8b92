"""CUDA graphs: a fixed sequence of kernels recorded once and replayed without the host in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

T = TypeVar("T")


def capture(call: Callable[[], T], device: torch.device, pool: Any = None) -> tuple[Callable[[], T], Any]:
    """A function that replays ``call`` and returns its output, and the graph's memory pool.

    ``call`` must read its inputs from tensors that stay where they are and must not wait for the device. The output is
    the same memory at every replay. Graphs may share a pool if each output is copied before another graph replays.
    """
    cuda: Any = torch.cuda
    aside = cuda.Stream(device)
    aside.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(aside):
        for _ in range(2):  # compiles and allocates library workspaces, which capture must not do
            call()
    torch.cuda.current_stream(device).wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    # Meanwhile another thread prepares the next images and asks for pinned memory. By default a capture is void as soon
    # as any thread of the process does that; what other threads ask for is not part of it and cannot harm it.
    with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
        output = call()

    def replay() -> T:
        graph.replay()
        return output

    return replay, pool if pool is not None else graph.pool()
