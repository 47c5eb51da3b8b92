"""Everything a run is determined by. A YAML file first, flags on top; an unknown key is an error.

A field and its sentence in ``config.toml`` are all that an option needs: ``sightline run`` makes its flags from the
fields, with their types and defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    SerializationInfo,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    field_validator,
    model_validator,
)

from sightline.core import flags
from sightline.core.flags import OUTPUT, SPEED, TAKES_URL, WHAT, Flag, described
from sightline.errors import SightlineError, yaml_line
from sightline.places.listing import Place, file_errors, place, read_text


def _path_or_url(given: Any, as_path: ValidatorFunctionWrapHandler) -> Any:
    """A URL stays one; everything else is a path, or refused as such."""
    found = place(given) if isinstance(given, str) else given
    is_url = not isinstance(found, Path) and hasattr(found, "joinpath")
    return found if is_url else place(as_path(found))


def _dumped(where: Any, into: SerializationInfo) -> Any:
    """JSON has no places."""
    return str(where) if into.mode == "json" else where


if TYPE_CHECKING:
    PathOrUrl: TypeAlias = Place
else:
    PathOrUrl = Annotated[Path, TAKES_URL, WrapValidator(_path_or_url), PlainSerializer(_dumped)]


@dataclass(frozen=True)
class ByDevice:
    """A default that depends on the device: a GPU wants longer stretches of work."""

    cpu: int
    gpu: int

    def __call__(self, options: dict[str, Any]) -> int:
        import torch

        device = options.get("device", "auto")
        on_gpu = device.startswith("cuda") or (device == "auto" and torch.cuda.is_available())
        return self.gpu if on_gpu else self.cpu

    def __str__(self) -> str:
        return f"{self.cpu}; on a GPU {self.gpu}"


@described(__file__)
class AuditConfig(BaseModel):
    """The arguments of ``sightline run`` and ``sightline.audit``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Flag(WHAT)]
    probes: Annotated[PathOrUrl, Flag(WHAT)]
    images: Annotated[PathOrUrl, Flag(WHAT)]
    arms: Annotated[list[str], Flag(WHAT, "--arm")]
    interventions: Annotated[list[str], Flag(WHAT)] = Field(default_factory=list)
    scorer: Annotated[str, Flag(WHAT)] = "auto"
    longest_answer: Annotated[int, Flag(WHAT)] = Field(32, ge=1)
    matched_controls: Annotated[bool, Flag(WHAT)] = True
    imports: Annotated[list[Path], Flag(WHAT, "--import")] = Field(default_factory=list)
    limit: Annotated[int | None, Flag(WHAT)] = Field(None, ge=1)
    image_prefix: Annotated[str, Flag(WHAT)] = ""

    profile: Literal["paper", "artifact"] = "paper"
    seed: int | None = None
    positions: Literal["auto", "preserve", "compact"] = "auto"
    box_source: str = "annotation"
    image_options: Annotated[dict[str, bool | int | float | str | None], Flag(name="--image-option")] = Field(
        default_factory=dict
    )
    clip: str | None = None

    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Flag(SPEED)] = "auto"
    device: Annotated[str, Flag(SPEED)] = "auto"
    attention: Annotated[Literal["sdpa", "eager"], Flag(SPEED)] = "sdpa"
    execution: Annotated[Literal["eager", "compiled", "graph"], Flag(SPEED)] = "eager"
    launcher: Annotated[str, Flag(SPEED)] = "inline"
    workers: Annotated[int | Literal["auto"], Flag(SPEED)] = "auto"
    address: Annotated[str | None, Flag(SPEED)] = None
    worker_timeout: Annotated[float, Flag(SPEED)] = Field(60.0, gt=0)
    standstill: Annotated[float, Flag(SPEED)] = Field(3600.0, gt=0)
    threads: Annotated[int | None, Flag(SPEED)] = Field(None, ge=1)
    part: Annotated[str | None, Flag(SPEED)] = Field(None, pattern=r"^[1-9][0-9]*/[1-9][0-9]*$")
    batch_tokens: Annotated[int, Flag(SPEED)] = Field(default_factory=ByDevice(16384, 32768), ge=1)
    batch_images: Annotated[int, Flag(SPEED)] = Field(1, ge=1)

    accept_change: Annotated[bool, Flag(OUTPUT)] = False
    keep_scores: Annotated[bool, Flag(OUTPUT)] = False
    skip_bad_images: Annotated[bool, Flag(OUTPUT)] = False
    out: Annotated[PathOrUrl, Flag(OUTPUT)]
    json_progress: Annotated[bool, Flag(OUTPUT)] = False
    shard_images: Annotated[int, Flag(OUTPUT)] = Field(default_factory=ByDevice(8, 64), ge=1)
    shard_probes: Annotated[int | None, Flag(OUTPUT)] = Field(default_factory=ByDevice(512, 4096), ge=1)

    @property
    def share(self) -> tuple[int, int] | None:
        """``part`` as numbers."""
        if self.part is None:
            return None
        which, parts = map(int, self.part.split("/"))
        return which, parts

    @model_validator(mode="after")
    def _part_exists(self) -> AuditConfig:
        if self.share is not None and self.share[0] > self.share[1]:
            raise ValueError(f"there is no part {self.part}; write K/N with K up to N, such as 1/4")
        return self

    @field_validator("arms", "imports", mode="before")
    @classmethod
    def _one_is_a_list(cls, given: Any) -> Any:
        return [given] if isinstance(given, str | Path) else given

    @field_validator("workers", mode="after")
    @classmethod
    def _some_workers(cls, given: int | str) -> int | str:
        if isinstance(given, int) and given < 1:
            raise ValueError(f"{given} workers do nothing; a number from 1, or auto")
        return given

    @field_validator("interventions", mode="before")
    @classmethod
    def _comma_separated(cls, given: Any) -> Any:
        """``deletion,occlusion`` is two of them, alone or as an item of a list."""
        if not isinstance(given, str | list):
            return given
        items = [given] if isinstance(given, str) else given
        return [name.strip() for item in items for name in str(item).split(",") if name.strip()]


def flag_of(field: str) -> str:
    """How the command line spells a field of the configuration."""
    return flags.flag_of(AuditConfig, field)


def read_config(path: Path | None, overrides: Mapping[str, Any]) -> AuditConfig:
    """A YAML file's values, replaced by every override that is not None (or empty); image options one by one."""
    values = _by_field(_file_values(path), path) if path is not None else {}
    given = {name: value for name, value in overrides.items() if value not in (None, [], {})}
    if "image_options" in values and "image_options" in given:
        below, above = values["image_options"], given["image_options"]
        # Whatever is no mapping is left for the fields' check to refuse.
        wrong = [part for part in (below, above) if part and not isinstance(part, Mapping)]
        given["image_options"] = wrong[0] if wrong else {**(below or {}), **(above or {})}
    try:
        return AuditConfig(**{**values, **given})
    except ValidationError as error:
        raise SightlineError(_in_words(error, path)) from None


def _file_values(path: Path) -> dict[Any, Any]:
    try:
        with file_errors(f"cannot read config {path}"):
            values = yaml.safe_load(read_text(path)) or {}
    except UnicodeDecodeError as error:
        raise SightlineError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise SightlineError(f"{path} is nested too deeply to be a mapping of options") from None
    except (yaml.YAMLError, ValueError) as error:  # the second of a number or date that Python has no value for
        raise SightlineError(f"{path} is not valid YAML: {yaml_line(error)}") from None
    if not isinstance(values, dict):
        raise SightlineError(f"{path} must hold a mapping of options")
    return values


def _by_field(values: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """The file's values by field, whether a key is spelled as the field (``arms``) or as its flag (``arm``)."""
    fields = {flag_of(name).removeprefix("--"): name for name in AuditConfig.model_fields}
    found: dict[str, Any] = {}
    for key, value in values.items():
        if not isinstance(key, str):
            raise SightlineError(f"{path}: {key!r} is no option; keys are names such as model")
        name = fields.get(key.replace("_", "-"), key)
        if name in found:
            raise SightlineError(f"{path} names '{name}' twice, once as '{key}'; leave one of the two")
        found[name] = value
    return found


def _in_words(error: ValidationError, path: Path | None) -> str:
    """The first thing that is wrong, by the flag that would set it right."""
    first = error.errors()[0]
    if not first["loc"]:
        return f"{path or 'the options'}: {str(first['msg']).splitlines()[0]}"
    field = str(first["loc"][0])
    if first["type"] == "missing":
        return f"{flag_of(field)} is needed (or '{field}:' in the config file)"
    if first["type"] == "extra_forbidden":
        place = f" in {path}" if path is not None else ""
        return f"unknown option '{field}'{place}; known: {', '.join(AuditConfig.model_fields)}"
    if first["type"] == "path_type":
        return f"{flag_of(field)}: {first['input']!r} is not a path; write a text, in quotes if it looks like a number"
    if first["type"] == "dict_type":
        return f"{flag_of(field)}: {first['input']!r} is not a mapping of names to values"
    return f"{flag_of(field)}: {str(first['msg']).splitlines()[0]}"
