"""Whether a model's weights fit before anything is allocated: a process that runs out is killed without a word."""

from __future__ import annotations

from pathlib import Path

import torch

from sightline.errors import SightlineError

CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where a container's limit and what of it is used stand, in both versions."""


def refuse_too_large(name: str, weights: int, device: torch.device) -> None:
    """Refuses a model of so many bytes that the device has no room for; silent where its room is not known."""
    room = available_memory(device)
    if room is not None and weights > room:
        place = "this machine" if device.type == "cpu" else f"the GPU ({torch.cuda.get_device_name(device)})"
        raise SightlineError(
            f"{name} needs {_gib(weights)} for its weights alone, and {place} has {_gib(room)} available; "
            "use a smaller shape or dtype" + (", or a GPU" if device.type == "cpu" else "")
        )


def available_memory(device: torch.device) -> int | None:
    """Bytes that could be allocated now; None where nothing says how many."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device.index)[0])
    return host_memory()


def host_memory(root: Path = Path("/")) -> int | None:
    """What Linux calls available, or what a container's limit leaves where that is less."""
    rooms = []
    for line in _text(root / "proc" / "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            rooms.append(int(line.split()[1]) * 1024)
    for most, used in CGROUPS:
        limit, taken = _text(root / most).strip(), _text(root / used).strip()
        if limit.isdigit() and taken.isdigit():
            rooms.append(max(0, int(limit) - int(taken)))
    return min(rooms, default=None)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
