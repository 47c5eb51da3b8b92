"""Everything a run is determined by. A YAML file first, flags on top; an unknown key is an error.

A field is all that an option needs: ``sightline run`` makes its flags from the fields, with their descriptions, types
and defaults.
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
from sightline.core.flags import OUTPUT, SPEED, TAKES_URL, WHAT, Flag
from sightline.errors import SightlineError
from sightline.places import Place, place, read_text


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


class AuditConfig(BaseModel):
    """The arguments of ``sightline run`` and ``sightline.audit``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Flag(WHAT)] = Field(
        description="Checkpoint folder or hub id; or an engine: openvino:DIR, openai:URL#NAME."
    )
    probes: Annotated[PathOrUrl, Flag(WHAT)] = Field(
        description="Probe file (Sightline's layout or the artifact's): a path or a URL."
    )
    images: Annotated[PathOrUrl, Flag(WHAT)] = Field(
        description="Folder that image names are relative to: a path or a URL."
    )
    arms: Annotated[list[str], Flag(WHAT, "--arm")] = Field(
        description="Selector, budget and arguments: full, target:0.3, random:192t, scope:0.4:alpha=0; with a budget of"
        " every tile's own instead of the whole image's: target:0.3/tile, grid:64t/tile; or a policy with a budget of"
        " its own for each sample (`sightline list policies`)."
    )
    interventions: Annotated[list[str], Flag(WHAT)] = Field(
        default_factory=list,
        description="Arms with an intervention, added to those named: deletion, occlusion, blank, positions, or another"
        " family of `sightline list interventions`.",
    )
    scorer: Annotated[str, Flag(WHAT)] = Field(
        "auto",
        description="What an answer is: yes_no (likelihood of both words), generation (yes or no in the model's own "
        "words); of open questions open (free text), candidate_ranking (gold against decoy), verification (yes/no about"
        " each). auto is yes_no or open, as the probes are.",
    )
    longest_answer: Annotated[int, Flag(WHAT)] = Field(
        32, ge=1, description="Most tokens of an answer in the model's own words; rows say which were cut off there."
    )
    matched_controls: Annotated[bool, Flag(WHAT)] = Field(
        True,
        description="Random and Grid at the budget of every arm that claims coverage, added where they are missing.",
    )
    imports: Annotated[list[Path], Flag(WHAT, "--import")] = Field(
        default_factory=list,
        description="Python file to import first, whose decorators register a selector, a metric or anything else.",
    )
    limit: Annotated[int | None, Flag(WHAT)] = Field(None, ge=1, description="Audit only the first so many images.")
    image_prefix: Annotated[str, Flag(WHAT)] = Field(
        "", description="Leading part of image names in the probe file to strip."
    )

    profile: Literal["paper", "artifact"] = Field(
        "paper",
        description="paper: as the paper defines it, done correctly; artifact: as its published numbers were made.",
    )
    seed: int | None = Field(
        None,
        description="Seed of every drawn selection unless an arm names its own; without it 17, under the artifact "
        "profile 13, and in an existing run folder the one it was begun with.",
    )
    positions: Literal["auto", "preserve", "compact"] = Field(
        "auto", description="Logical positions of kept tokens; auto is the paper's policy for the architecture."
    )
    box_source: str = Field(
        "annotation",
        description="Boxes that selectors see: annotation, jitter_light, jitter_heavy, detected_like, low_recall, "
        "missing, rapidocr, easyocr, tesseract. Coverage is audited against the annotation.",
    )
    image_options: Annotated[dict[str, bool | int | float | str | None], Flag(name="--image-option")] = Field(
        default_factory=dict,
        description="How images reach the model; `sightline backbones` lists what each architecture takes.",
    )
    clip: str | None = Field(None, description="CLIP checkpoint for selectors that compare with CLIP embeddings.")

    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Flag(SPEED)] = Field(
        "auto", description="Precision of the weights; auto is the one the checkpoint was saved in."
    )
    device: Annotated[str, Flag(SPEED)] = Field("auto", description="auto, cpu, cuda, cuda:1.")
    attention: Annotated[Literal["sdpa", "eager"], Flag(SPEED)] = Field(
        "sdpa", description="Attention kernel of the model: PyTorch's fused one, or plain matrix products."
    )
    execution: Annotated[Literal["eager", "compiled", "graph"], Flag(SPEED)] = Field(
        "eager", description="How the language layers run: one kernel at a time, compiled, or replayed as a CUDA graph."
    )
    launcher: Annotated[str, Flag(SPEED)] = Field(
        "inline",
        description="Where the work runs: inline is here, in this process; local in several processes of this machine; "
        "queue here, together with every other command on the same run folder; ray in actors of a Ray cluster.",
    )
    workers: Annotated[int | Literal["auto"], Flag(SPEED)] = Field(
        "auto",
        description="Processes of the launchers local and ray: a number, or auto for one per GPU, without GPUs one per "
        "group of as many cores as there are --threads.",
    )
    address: Annotated[str | None, Flag(SPEED)] = Field(
        None, description="Ray cluster of the launcher ray; without it one is started here."
    )
    worker_timeout: Annotated[float, Flag(SPEED)] = Field(
        60.0, gt=0, description="Seconds without a sign of life after which others take over what a process had begun."
    )
    standstill: Annotated[float, Flag(SPEED)] = Field(
        3600.0,
        gt=0,
        description="Seconds without a batch, an image or a file after which a process gives no more signs of life.",
    )
    threads: Annotated[int | None, Flag(SPEED)] = Field(
        None,
        ge=1,
        description="Threads of one process on a CPU, on which the last bits of sums depend: fixed for the folder. "
        "Without it those of the run folder, in a new one as many as PyTorch would take.",
    )
    part: Annotated[str | None, Flag(SPEED)] = Field(
        None,
        pattern=r"^[1-9][0-9]*/[1-9][0-9]*$",
        description="K/N: compute every N-th shard alone, from the K-th on; folders of all parts together are one run.",
    )
    batch_tokens: Annotated[int, Flag(SPEED)] = Field(
        default_factory=ByDevice(16384, 32768),
        ge=1,
        description="Language-model tokens per forward, on which last bits depend: fixed for the folder, and without "
        "it that of the folder. Halved when memory runs out, which rows then say.",
    )
    batch_images: Annotated[int, Flag(SPEED)] = Field(
        1, ge=1, description="Images per vision call; with one, no image's tokens depend on its neighbours at all."
    )

    accept_change: Annotated[bool, Flag(OUTPUT)] = Field(
        False,
        description="Go on with a folder although what decides the last bits of rows is another: batch tokens or images"
        ", device, threads, attention kernel, versions of torch and transformers, files of the checkpoint beside its "
        "weights. Rows, verify and reports then name the mixture.",
    )
    keep_scores: Annotated[bool, Flag(OUTPUT)] = Field(
        False,
        description="Store what scored selectors rank tokens by, 4 or 8 bytes per token and row: the viewer then shows "
        "scores and ranks, and replays other budgets.",
    )
    skip_bad_images: Annotated[bool, Flag(OUTPUT)] = Field(
        False,
        description="Leave out the probes of images that are missing, damaged or unreadable to the model, and count "
        "them, instead of failing.",
    )
    out: Annotated[PathOrUrl, Flag(OUTPUT)] = Field(
        description="Run folder, by path or URL: created, resumed or amended."
    )
    json_progress: Annotated[bool, Flag(OUTPUT)] = Field(
        False, description="Tell progress as lines of JSON on standard error, for programs."
    )
    shard_images: Annotated[int, Flag(OUTPUT)] = Field(
        default_factory=ByDevice(8, 64),
        ge=1,
        description="Images per shard: the unit of writing and resuming.",
    )
    shard_probes: Annotated[int | None, Flag(OUTPUT)] = Field(
        default_factory=ByDevice(512, 4096),
        ge=1,
        description="Most probes of a shard: an image with more is encoded again for each of its shards.",
    )

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


def _over(below: Any, above: Any) -> Any:
    """Image options over image options, one by one; whatever is no mapping is left for the fields' check to refuse."""
    wrong = [part for part in (below, above) if part and not isinstance(part, Mapping)]
    return wrong[0] if wrong else {**(below or {}), **(above or {})}


def flag_of(field: str) -> str:
    """How the command line spells a field of the configuration."""
    return flags.flag_of(AuditConfig, field)


def read_config(path: Path | None, overrides: Mapping[str, Any]) -> AuditConfig:
    """A YAML file's values, replaced by every override that is not None (or empty); image options one by one."""
    values = _by_field(_file_values(path), path) if path is not None else {}
    given = {name: value for name, value in overrides.items() if value not in (None, [], {})}
    if "image_options" in values and "image_options" in given:
        given["image_options"] = _over(values["image_options"], given["image_options"])
    try:
        return AuditConfig(**{**values, **given})
    except ValidationError as error:
        raise SightlineError(_in_words(error, path)) from None


def _file_values(path: Path) -> dict[Any, Any]:
    try:
        values = yaml.safe_load(read_text(path)) or {}
    except OSError as error:
        raise SightlineError(f"cannot read config {path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SightlineError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except RecursionError:
        raise SightlineError(f"{path} is nested too deeply to be a mapping of options") from None
    except (yaml.YAMLError, ValueError) as error:  # the second of a number or date that Python has no value for
        raise SightlineError(f"{path} is not valid YAML: {str(error).splitlines()[0]}") from None
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
    return f"{flag_of(field)}: {str(first['msg']).splitlines()[0]}"
