"""What to measure, as plain data that travels to the measuring process, and how each field of it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar

from sightline.errors import SightlineError

R = TypeVar("R", bound="Request")


@dataclass(frozen=True)
class BenchmarkOption:
    """How a field is asked for on the command line."""

    help: str
    flag: str = ""
    """Where it is not made from the field's name: ``--model``."""
    minimum: int | None = None
    read: Callable[[str], list[dict[str, Any]]] | None = None
    """For values that are written as text: the fields that the text stands for, once per request to be made."""
    former: str = ""
    """What its flag was called in the release before; it still answers, with a hint."""
    usual: str = ""
    """The text that stands for nothing given; without ``read`` the field's own default does."""


def option(default: Any, help: str, **how: Any) -> Any:
    """A field of a request that the command line asks for; ``how`` is the rest of ``BenchmarkOption``."""
    return field(default=default, metadata={"option": BenchmarkOption(help, **how)})


def with_default(name: str, default: Any) -> Any:
    """A field that all requests have, asked for in the same words, with another default."""
    (common,) = [each for each in fields(Request) if each.name == name]
    return field(default=default, metadata=common.metadata)


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


def size_of_image(text: str) -> list[dict[str, Any]]:
    if not text:
        return [{"image_size": None}]
    try:
        width, height = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise SightlineError(f"--image-size {text}: write WIDTHxHEIGHT, for example 896x896") from None
    return [{"image_size": (width, height)}]


@dataclass(frozen=True)
class Request:
    """One measurement, made in a process of its own: what every benchmark must know. Each adds fields of its own.

    A field made by ``option`` is an option of ``sightline bench NAME``; a plain one, also one that hides an option of
    this class, is not.
    """

    kind: str
    """The benchmark, by name."""
    config: str = option(
        "",
        "A published shape: qwen3-vl-8b, llava-1.5-7b, internvl3.5-8b, or tiny-*.",
        flag="--shape",
        former="--config",
    )
    """Cards have called it so since the first release."""
    checkpoint: str = option("", "A checkpoint instead of a shape: folder or hub id.", flag="--model")
    arms: tuple[str, ...] = ("full:1.0",)
    """Arms measured one after the other in this process; one unless a process is shared to save time."""
    execution: str = "eager"
    device: str = option("auto", "auto, cuda or cpu.")
    dtype: str = option("auto", "auto (bfloat16 on a GPU, float32 on a CPU; a checkpoint's own), or a dtype.")
    attention: str = option("sdpa", "sdpa or eager.")
    positions: str = option("auto", "Position policy: auto, preserve, compact.")
    box_source: str = "annotation"
    image_size: tuple[int, int] | None = option(
        None,
        "WIDTHxHEIGHT of the image; the shape's usual size if not given.",
        read=size_of_image,
        former="--picture",
    )
    image_options: dict[str, Any] = field(default_factory=dict)
    """How images reach a checkpoint, where not as by default."""
    text_tokens: int = option(45, "Text tokens of the prompt.", minimum=1)
    repeats: int = option(10, "Samples kept.", minimum=1)
    warm_up: int = option(3, "Samples thrown away first.", minimum=0)
    clip: str = option("", "CLIP checkpoint, for selectors that need one.")
    profile: bool = option(False, "Also show where the time goes, by kind of kernel.")

    def __post_init__(self) -> None:
        if bool(self.config) == bool(self.checkpoint):
            raise SightlineError("name what to measure: either a shape with random weights or a checkpoint")
        for name, asked in options_of(type(self)):
            value = getattr(self, name)
            if asked.minimum is not None and value < asked.minimum:
                raise SightlineError(f"{flag_of(name, asked)} {value}: must be at least {asked.minimum}")

    def as_dict(self) -> dict[str, Any]:
        """As JSON would give it back."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}

    def record(self) -> dict[str, Any]:
        """What a card keeps of it."""
        return self.as_dict()

    @classmethod
    def from_dict(cls: type[R], values: dict[str, Any]) -> R:
        unknown = sorted(set(values) - {each.name for each in fields(cls)})
        if unknown:
            raise SightlineError(f"unknown field {unknown[0]} in a measurement request")
        frozen: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**frozen)


@dataclass(frozen=True)
class ProbedRequest(Request):
    """A measurement that can be made on real probes: their images, questions and boxes."""

    probe_file: str = option("", "Probe file: its images and questions instead of made-up ones.", flag="--probes")
    image_folder: str = option("", "Folder of the probes' images.", flag="--images")

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.probe_file) != bool(self.image_folder):
            raise SightlineError("real probes are a file and its images: give --probes FILE and --images DIR")
        if self.probe_file and self.image_size:
            raise SightlineError("--image-size is of a made-up image; the images of --probes keep their own")

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


def options_of(request: type[Request]) -> Iterator[tuple[str, BenchmarkOption]]:
    """The fields that the command line asks for, in the order declared."""
    return ((each.name, each.metadata["option"]) for each in fields(request) if "option" in each.metadata)


def flag_of(name: str, asked: BenchmarkOption) -> str:
    return asked.flag or f"--{name.replace('_', '-')}"


# What a benchmark hands back: the samples of one arm at one batch size.


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
