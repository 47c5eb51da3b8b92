"""What to measure, as data that travels to the measuring process, and what comes back.

A described field of a request is an option of ``sightline bench NAME``, declared as ``sightline.core.flags`` says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from sightline.core.flags import Flag, flag_of, least_of
from sightline.errors import SightlineError


def words_of(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def positive_numbers(text: str, flag: str) -> list[int]:
    try:
        numbers = [int(part) for part in words_of(text)]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise SightlineError(f"{flag} {text}: give positive whole numbers, separated by commas")
    return numbers


def one_request_each(field: str, flag: str) -> Callable[[str], list[dict[str, Any]]]:
    """Reads the numbers behind a flag, for a measurement with each of them."""
    return lambda text: [{field: number} for number in positive_numbers(text, flag)]


def size_of_image(text: str) -> list[dict[str, Any]]:
    if not text:
        return [{"image_size": None}]
    try:
        width, height = (int(part) for part in text.lower().split("x"))
        if min(width, height) < 1:
            raise ValueError
    except ValueError:
        raise SightlineError(f"--image-size {text}: write WIDTHxHEIGHT, for example 896x896") from None
    return [{"image_size": (width, height)}]


class Request(BaseModel):
    """One measurement, made in a process of its own: what every benchmark must know. Each adds fields of its own.

    A field without a description, also one that hides an option of this class, is none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str
    """The benchmark, by name."""
    config: Annotated[str, Flag(name="--shape")] = Field(
        "", description="A published shape: qwen3-vl-8b, llava-1.5-7b, internvl3.5-8b, or tiny-*."
    )
    """Cards have called it so since the first of them."""
    checkpoint: Annotated[str, Flag(name="--model")] = Field(
        "", description="A checkpoint instead of a shape: folder or hub id."
    )
    arms: tuple[str, ...] = ("full:1.0",)
    """Arms measured one after the other in this process; one unless a process is shared to save time."""
    execution: str = "eager"
    device: str = Field("auto", description="auto, cuda or cpu.")
    dtype: str = Field(
        "auto", description="auto (bfloat16 on a GPU, float32 on a CPU; a checkpoint's own), or a dtype."
    )
    attention: str = Field("sdpa", description="sdpa or eager.")
    positions: str = Field("auto", description="Position policy: auto, preserve, compact.")
    box_source: str = "annotation"
    image_size: Annotated[tuple[int, int] | None, Flag(read=size_of_image)] = Field(
        None, description="WIDTHxHEIGHT of the image; the shape's usual size if not given."
    )
    image_options: dict[str, Any] = Field(default_factory=dict)
    """How images reach a checkpoint, where not as by default."""
    text_tokens: int = Field(45, ge=1, description="Text tokens of the prompt.")
    repeats: int = Field(10, ge=1, description="Samples kept.")
    warm_up: int = Field(3, ge=0, description="Samples thrown away first.")
    clip: str = Field("", description="CLIP checkpoint, for selectors that need one.")
    profile: bool = Field(False, description="Also show where the time goes, by kind of kernel.")

    def __init__(self, kind: str, **values: Any) -> None:
        try:
            super().__init__(kind=kind, **values)
        except ValidationError as error:
            raise SightlineError(_in_words(type(self), error)) from None

    @model_validator(mode="after")
    def _names_one_model(self) -> Self:
        if bool(self.config) == bool(self.checkpoint):
            raise SightlineError("name what to measure: either a shape with random weights or a checkpoint")
        return self

    def as_dict(self) -> dict[str, Any]:
        """As JSON would give it back."""
        return self.model_dump(mode="json")

    def record(self) -> dict[str, Any]:
        """What a card keeps of it."""
        return self.as_dict()


class ProbedRequest(Request):
    """A measurement that can be made on real probes: their images, questions and boxes."""

    probe_file: Annotated[str, Flag(name="--probes")] = Field(
        "", description="Probe file: its images and questions instead of made-up ones."
    )
    image_folder: Annotated[str, Flag(name="--images")] = Field("", description="Folder of the probes' images.")

    @model_validator(mode="after")
    def _probes_have_images(self) -> Self:
        if bool(self.probe_file) != bool(self.image_folder):
            raise SightlineError("real probes are a file and its images: give --probes FILE and --images DIR")
        if self.probe_file and self.image_size:
            raise SightlineError("--image-size is of a made-up image; the images of --probes keep their own")
        return self

    def record(self) -> dict[str, Any]:
        """Names without their folders, which mean nothing on another machine."""
        places = {"probe_file": self.probe_file, "image_folder": self.image_folder}
        return {**super().record(), **{name: Path(place).name for name, place in places.items()}}

    @property
    def most_probes(self) -> int:
        """So many of the file's first probes are measured."""
        return self.repeats

    @property
    def least_probes(self) -> int:
        """With fewer than that there is nothing to measure; where the file has fewer than the most, they recur."""
        return 1


def with_default(name: str, default: Any) -> Any:
    """A field that all requests have, asked for in the same words, with another default."""
    common = Request.model_fields[name]
    return Field(default, ge=least_of(common), description=common.description)


def _in_words(request: type[Request], error: ValidationError) -> str:
    """The first thing that is wrong, by the flag that would set it right."""
    first = error.errors()[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return f"unknown field {name} in a measurement request"
    bound = first.get("ctx", {}).get("ge")
    wrong = str(first["msg"]).splitlines()[0] if bound is None else f"must be at least {bound}"
    return f"{flag_of(request, name)} {first['input']}: {wrong}"


@dataclass
class Measurement:
    """The samples of one arm at one batch size; a card calls it a point."""

    arm: str
    batch: int
    visual_tokens: int
    kept_tokens: int
    length: int
    """Positions per sequence that the language layers read."""
    samples_ms: dict[str, list[float]]
    """Every sample of every stage, in the order taken."""
    flops: dict[str, float] = field(default_factory=dict)
    """Estimated, per batch, for stages that can be counted."""
    memory: dict[str, int] | None = None
    setup_ms: list[float] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)
