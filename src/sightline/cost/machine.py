"""What a measurement ran on: device, clocks, software, and the matrix-product ceiling measured in the same process."""

from __future__ import annotations

import platform
import re
import shutil
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch

from sightline.backbones.base import Backbone
from sightline.backbones.images import Pixels
from sightline.backbones.language import LanguageModel
from sightline.backbones.towered import Towered
from sightline.device.work import Stopwatch

CEILING_SIDE = {"cuda": 8192, "cpu": 768}
CEILING_REPEATS = 10
READ_BYTES = {"cuda": 2**32, "cpu": 2**26}


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


def read_bandwidth(device: torch.device) -> float:
    """GB/s that summing a large tensor reaches."""
    numbers = torch.ones(READ_BYTES[device.type] // 4, dtype=torch.float32, device=device)
    times = []
    for _ in range(6):
        watch = Stopwatch(device)
        numbers.sum()
        watch.stop()
        times.append(watch.ms)
    return float(numbers.nbytes / min(times) / 1e6)


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


# Where the time goes: one profiled pass, summed by kind of kernel. Taken after the samples, never among them.

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


# Estimated floating-point operations, counted from shapes. They stand beside measured times, never instead of them.


def language_flops(backbone: Backbone, length: int) -> float:
    """All language layers over one sequence of L positions, without embeddings and output head.

    2 L W for matrix products with W weights, and causal attention 2 * 2 * H d L (L + 1) / 2 per layer: every position
    multiplies with itself and those before it, once for the scores and once for the values. 0 for a decoder that reads
    the image beside the text: nobody has said which of the L its layers run on.
    """
    if backbone.language.beside:
        return 0.0
    config = backbone.model.config.text_config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    weights = _matrix_weights(backbone.language.layers)
    width = int(config.num_attention_heads * head)
    attention = 2.0 * width * length * (length + 1) * len(backbone.language.layers)
    return 2.0 * weights * length + attention


def token_bytes(language: LanguageModel) -> int:
    """What all layers remember of a token: its keys and values."""
    return 2 * len(language.layers) * language.key_heads * language.head_width * language.dtype.itemsize


def step_weights(language: LanguageModel) -> int:
    """Bytes of weights that a step of decoding cannot do without reading: all of its layers and of the head."""
    return sum(weights.nbytes for module in (*language.layers, language.head) for weights in module.parameters())


def vision_flops(backbone: Backbone, sequences: list[int], tokens: int) -> float:
    """Vision blocks over attention sequences of these lengths, and the projector over its output tokens.

    2 P W for the blocks' matrix products and 2 * 2 * P^2 C per block for attention, which looks both ways. Blocks
    behind the last one that tokens depend on do not run. 0 without sequences: nobody has said how the tower attends.
    """
    if not sequences:
        return 0.0
    blocks = backbone.vision_blocks[: backbone.vision_depth]
    width = int(backbone.model.config.vision_config.hidden_size)
    patches = sum(sequences)
    attention = 4.0 * width * sum(p * p for p in sequences) * len(blocks)
    tower = getattr(backbone.model.model, "visual", None)
    if tower is not None:
        projector = _matrix_weights([tower.merger, *tower.deepstack_merger_list])
    else:
        projector = _matrix_weights([backbone.model.model.multi_modal_projector])
    return 2.0 * _matrix_weights(blocks) * patches + attention + 2.0 * projector * tokens


def attention_sequences(backbone: Backbone, pixels: Pixels) -> list[int]:
    """Patches that attend to each other in the vision tower: one sequence per image, or per tile."""
    if not isinstance(backbone, Towered):  # nobody has said how its tower attends
        return []
    tiles, rows, columns = pixels.grid
    return [rows * columns + backbone.class_tokens] * tiles


def _matrix_weights(modules: object) -> int:
    """Entries of all weight matrices; vectors (norms, biases) are negligible."""
    return sum(p.numel() for module in modules for p in module.parameters() if p.ndim == 2)  # type: ignore[attr-defined]
