"""Where the time goes: one profiled pass, summed by kind of kernel. Taken after the samples, never among them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

KINDS = (
    ("fused", re.compile(r"^triton_")),
    ("attention", re.compile(r"flash|fmha|attention|softmax", re.IGNORECASE)),
    ("matrix product", re.compile(r"gemm|nvjet|cutlass|cublas|addmm|::b?mm\b|::linear", re.IGNORECASE)),
    ("copy", re.compile(r"memcpy|memset|copy_|catarray|::cat\b|::clone", re.IGNORECASE)),
)
"""First match counts; what matches none is elementwise or a reduction."""


def profiled(work: Callable[[], object], device: torch.device) -> dict[str, Any]:
    """Milliseconds and calls by kind, and the longest kernels by name."""
    from torch.profiler import ProfilerActivity, profile

    cuda = device.type == "cuda"
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda else [])]
    with profile(activities=activities) as recorded:
        work()
        if cuda:
            torch.cuda.synchronize(device)
    time, calls = defaultdict[str, float](float), defaultdict[str, int](int)
    longest = []
    for event in recorded.key_averages():
        # On a GPU only kernels count: the host's operators carry the same time a second time.
        if cuda and "CUDA" not in str(event.device_type):
            continue
        ms = (event.self_device_time_total if cuda else event.self_cpu_time_total) / 1e3
        if ms <= 0:
            continue
        kind = kind_of(event.key)
        time[kind] += ms
        calls[kind] += event.count
        longest.append((ms, event.key, event.count))
    return {
        "kinds": {kind: {"ms": time[kind], "calls": calls[kind]} for kind in sorted(time, key=lambda k: -time[k])},
        "longest": [
            {"kernel": key[:120], "kind": kind_of(key), "ms": ms, "calls": count}
            for ms, key, count in sorted(longest, reverse=True)[:15]
        ],
    }


def kind_of(kernel: str) -> str:
    return next((kind for kind, pattern in KINDS if pattern.search(kernel)), "elementwise")
