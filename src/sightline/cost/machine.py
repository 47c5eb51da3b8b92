"""What a measurement ran on: device, clocks, software, and the matrix-product ceiling measured in the same process."""

from __future__ import annotations

import platform
import shutil
import statistics
import subprocess
from typing import Any

import torch

from sightline.backbones.language import LanguageModel
from sightline.device.stopwatch import Stopwatch

CEILING_SIDE = {"cuda": 8192, "cpu": 768}
CEILING_REPEATS = 10


def machine_facts(device: torch.device) -> dict[str, Any]:
    import transformers

    facts: dict[str, Any] = {
        "device": device.type,
        "name": platform.processor() or platform.machine(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        facts |= {
            "name": properties.name,
            "memory_gib": properties.total_memory / 2**30,
            "multiprocessors": properties.multi_processor_count,
            "cuda": torch.version.cuda,
        }
    return facts


def kernels(language: LanguageModel, attention: str, execution: str) -> dict[str, Any]:
    """Which kernels a run may use; the same for full and pruned prefixes."""
    allowed = {}
    if language.device.type == "cuda":
        switches: Any = torch.backends.cuda
        allowed = {
            "flash": switches.flash_sdp_enabled(),
            "cudnn": switches.cudnn_sdp_enabled(),
            "memory_efficient": switches.mem_efficient_sdp_enabled(),
        }
    used = {"attention": attention, "execution": execution, "scaled_dot_product": allowed}
    return {**used, "own_causal": True} if language.own_kernel else used


def clocks(device: torch.device) -> dict[str, float] | None:
    """SM and memory clock in MHz, power and temperature as the driver reports them now; None without a GPU."""
    if device.type != "cuda" or shutil.which("nvidia-smi") is None:
        return None
    fields = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu")
    answer = subprocess.run(
        ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits", f"--id={device.index or 0}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    try:
        return dict(zip(fields, (float(part) for part in answer.stdout.split(",")), strict=True))
    except ValueError:
        return None


def ceiling(device: torch.device, dtype: torch.dtype) -> dict[str, Any]:
    """The rate of a large square matrix product on random data: what "fraction of the ceiling" refers to."""
    side = CEILING_SIDE[device.type]
    left, right = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    for _ in range(3):
        left @ right
    watches = []
    for _ in range(CEILING_REPEATS):
        watch = Stopwatch(device)
        left @ right
        watch.stop()
        watches.append(watch)
    samples = [2.0 * side**3 / watch.ms / 1e9 for watch in watches]
    return {"side": side, "samples_tflops": samples, "tflops": statistics.median(samples)}


class PeakMemory:
    """Allocated and reserved bytes: absolute peaks, and how far they rose above the start."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.synchronize(device)
            torch.cuda.empty_cache()
            self.allocated = torch.cuda.memory_allocated(device)
            self.reserved = torch.cuda.memory_reserved(device)
            torch.cuda.reset_peak_memory_stats(device)

    def warmed_up(self) -> None:
        """Forgets the peak of compiling; what compiling keeps stays counted."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            torch.cuda.reset_peak_memory_stats(self.device)

    def read(self) -> dict[str, int] | None:
        """None on a CPU, where the allocator keeps no such count."""
        if self.device.type != "cuda":
            return None
        torch.cuda.synchronize(self.device)
        allocated = torch.cuda.max_memory_allocated(self.device)
        reserved = torch.cuda.max_memory_reserved(self.device)
        return {
            "allocated_peak": allocated,
            "reserved_peak": reserved,
            "allocated_incremental": allocated - self.allocated,
            "reserved_incremental": reserved - self.reserved,
        }
