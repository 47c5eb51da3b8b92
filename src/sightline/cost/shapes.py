"""Published model shapes with random weights: weights do not affect speed, so none need to be fetched to measure it."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from sightline.backbones.base import BACKBONES, Backbone
from sightline.backbones.towered import Towered
from sightline.errors import SightlineError

# Whether a model's weights fit before anything is allocated: a process that runs out is killed without a word.

CGROUPS = (
    ("sys/fs/cgroup/memory.max", "sys/fs/cgroup/memory.current"),
    ("sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
"""Where a container's limit and what of it is used stand, in both versions."""


def refuse_too_large(name: str, weights: int, device: torch.device) -> None:
    """Refuses a model of so many bytes that the device has no room for; silent where its room is not known."""
    room = int(torch.cuda.mem_get_info(device.index)[0]) if device.type == "cuda" else host_memory()
    if room is not None and weights > room:
        place = "this machine" if device.type == "cpu" else f"the GPU ({torch.cuda.get_device_name(device)})"
        raise SightlineError(
            f"{name} needs {_gib(weights)} for its weights alone, and {place} has {_gib(room)} available; "
            "use a smaller shape or dtype" + (", or a GPU" if device.type == "cpu" else "")
        )


def host_memory(root: Path = Path("/")) -> int | None:
    """Bytes that Linux calls available, or those that a container leaves if fewer; None where neither is told."""
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


# A tokenizer for models that exist only as shapes: every word is one token, numbered as it is first seen.

_PIECE = re.compile(r"<\w+>|\s?[^\s<]+|\s|<")
_FIRST = 16
_IDS = 480
"""Ids stay below every vocabulary in use, the tiny shapes' included."""


class StandInTokenizer:
    """As much of a tokenizer as prompts need."""

    image_token = "<image>"
    start_image_token = "<start>"
    end_image_token = "<end>"
    eos_token_id = 2
    chat_template = "stand-in"

    def __init__(self, image_token_id: int) -> None:
        self._ids: dict[str, int] = {self.image_token: image_token_id}
        self._pieces: dict[int, str] = {image_token_id: self.image_token}

    def __call__(self, text: str, add_special_tokens: bool = True) -> SimpleNamespace:
        return SimpleNamespace(input_ids=[self._id(piece) for piece in _PIECE.findall(text)])

    def _id(self, piece: str) -> int:
        if piece not in self._ids:
            fresh = _FIRST + len(self._ids) % (_IDS - _FIRST)
            self._ids[piece] = fresh
            self._pieces.setdefault(fresh, piece)
        return self._ids[piece]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self._pieces.get(int(i), "?") for i in ids)

    def convert_ids_to_tokens(self, token: int) -> str:
        return self._pieces[token]

    def apply_chat_template(
        self, messages: Sequence[Mapping[str, Any]], tokenize: bool = False, add_generation_prompt: bool = False
    ) -> str:
        turns = [f"<{message['role']}>{_stand_in_tokenizer_text(message['content'])}<stop>" for message in messages]
        return "".join(turns) + ("<assistant>" if add_generation_prompt else "")


def _stand_in_tokenizer_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join("<image>" if part["type"] == "image" else part["text"] for part in content)


@dataclass(frozen=True)
class ModelShape:
    """All that decides how much work a checkpoint is."""

    kind: str
    """``model_type``"""
    config: dict[str, Any]
    processor: dict[str, Any]
    image: tuple[int, int]
    """(width, height) of the image that costs are measured on unless another is asked for."""


def _read_shapes() -> dict[str, ModelShape]:
    """The published shapes in ``shapes.toml``, each over what its family shares."""
    read = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    shapes = {}
    for name, own in read["shapes"].items():
        shared = read["families"][own["family"]]
        parts = ("text", "vision", "config", "processor")
        text, vision, config, processor = ({**shared.get(part, {}), **own.get(part, {})} for part in parts)
        config |= {"text_config": text, "vision_config": vision}
        width, height = own["image"]
        shapes[name] = ModelShape(own["family"], config, processor, (width, height))
    return shapes


SHAPES = _read_shapes()
"""By the name that ``--shape`` takes; the tiny ones exercise the same code on a CPU."""


def shape_named(name: str) -> ModelShape:
    if name not in SHAPES:
        raise SightlineError(f"unknown shape '{name}'; choose one of {', '.join(SHAPES)}")
    return SHAPES[name]


def random_backbone(name: str, *, device: torch.device, dtype: torch.dtype, attention: str = "sdpa") -> Backbone:
    """A backbone of that shape, initialised on the device itself; nothing is read from or written to disk."""
    import transformers

    shape = shape_named(name)
    backbone = architecture_of(shape)
    refuse_too_large(name, weight_bytes(name, dtype), device)
    torch.manual_seed(0)
    model = _random_model(shape, device, dtype, attention)
    processor = getattr(transformers, backbone.image_processor_class)(**shape.processor)
    return backbone(model, StandInTokenizer(image_token_id=5), processor, backbone.image_options())


def architecture_of(shape: ModelShape) -> type[Towered]:
    kind = BACKBONES.get(shape.kind)
    assert issubclass(kind, Towered), f"{shape.kind} has no file that runs its tower"
    return kind


def weight_bytes(name: str, dtype: torch.dtype) -> int:
    """What the weights of that shape take, counted on a model that has sizes and no memory."""
    model = _random_model(shape_named(name), torch.device("meta"), dtype, "sdpa")
    return sum(weights.numel() * weights.element_size() for weights in model.parameters())


def _random_model(shape: ModelShape, device: torch.device, dtype: torch.dtype, attention: str) -> Any:
    import transformers

    config = transformers.AutoConfig.for_model(shape.kind, **shape.config)
    kind = getattr(transformers, architecture_of(shape).model_class)
    with torch.device(device):
        return kind._from_config(config, dtype=dtype, attn_implementation=attention)
