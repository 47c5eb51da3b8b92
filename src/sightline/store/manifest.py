"""What a run says of itself: the fields of ``run.json``, settings that all rows share, and small whole files beside it
of what whoever computes it finds out on the way.
"""

from __future__ import annotations

import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from typing import Annotated, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from sightline.core.row import SCHEMA_VERSION
from sightline.errors import SightlineError
from sightline.places.listing import Listing, Place, read_whole, remove
from sightline.places.writing import create_new, make_within, this_process, write_whole
from sightline.store.shard_files import Owner, ShardPiece, bounds, texts_digest

MOST_SHARDS = 10_000_000
"""Of a run; a larger number is damage, and counting so many would take for ever."""
CHECKSUM, OF_PROBES = "checksum", "probes_checksum"
"""Fields of a manifest: the SHA-256 of all that it says, and those that the probe file may have (two of them while it
is being written anew)."""


class BadImage(BaseModel):
    """An image that could not be read."""

    model_config = ConfigDict(extra="allow", strict=True)

    reason: str
    shard: int


class Manifest(BaseModel):
    """``run.json``, as far as anybody computes with it; whatever else it says is taken as it is."""

    model_config = ConfigDict(extra="allow", strict=True)

    arms: list[Annotated[str, Field(min_length=1)]]
    shards: int = Field(0, ge=0, le=MOST_SHARDS)
    part: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    """K and N of part K of N."""
    bad_images: dict[str, BadImage] | None = None
    set_aside: dict[str, Any] | None = None
    inputs: dict[str, Any] | None = None
    versions: dict[str, Any] | None = None
    boxes: dict[str, Any] | None = None
    image_options: dict[str, Any] | None = None
    imports: dict[str, Any] | None = None
    model: str | None = None
    model_type: str | None = None
    weight_digest: str | None = None
    probe_digest: str | None = None
    dtype: str | None = None
    positions: str | None = None
    profile: str | None = None
    box_source: str | None = None
    device: str | None = None
    created: str | None = None
    attention: str | None = None
    scorer: str | None = None
    execution: str | None = None
    images: str | None = None

    @field_validator("arms")
    @classmethod
    def _each_once(cls, arms: list[str]) -> list[str]:
        if len(set(arms)) < len(arms):
            raise ValueError("it names one twice")
        return arms

    @field_validator("part")
    @classmethod
    def _within(cls, part: list[int] | None) -> list[int] | None:
        if part is not None and not 1 <= part[0] <= part[1]:
            raise ValueError(f"{part} is not K and N of part K of N")
        return part


def read_manifest(path: Place) -> dict[str, Any]:
    """``run.json`` as it stands on the disk; one line where there is none, or a damaged one."""
    try:
        found = json.loads(read_whole(path).decode("utf-8"))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENAMETOOLONG, None):
            raise SightlineError(f"{path} cannot be read: {error.strerror or error}") from None
        raise SightlineError(f"{path.parent} is not a run folder: it has no {path.name}") from None
    except UnicodeDecodeError as error:
        raise SightlineError(f"{path} is damaged: it is not UTF-8 text (byte {error.start}); restore it") from None
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{path} is not valid JSON ({error}); restore it or start anew") from None
    if isinstance(found, dict) and (schema := found.get("schema")) != SCHEMA_VERSION:
        raise SightlineError(f"{path.parent} was written with row schema {schema}, this version reads {SCHEMA_VERSION}")
    return check_manifest(found, path)


def check_manifest(found: Any, path: Place) -> dict[str, Any]:
    """What stands in ``run.json``, if somebody can compute with it."""
    if not isinstance(found, dict):
        raise SightlineError(f"{path} is damaged: it is no JSON object; restore it or start anew")
    try:
        Manifest.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field, *within = map(str, first["loc"] or ("its fields",))
        where = f"'{field}'{' in ' * bool(within)}{'.'.join(within)}"
        raise SightlineError(f"{path} is damaged: {where}: {first['msg']}; restore it or start anew") from None
    return found


def manifest_bytes(manifest: Mapping[str, Any]) -> bytes:
    """``run.json`` with a checksum over all that it says."""
    said = {name: value for name, value in manifest.items() if name != CHECKSUM}
    return (json.dumps({**said, CHECKSUM: _said(said)}, indent=2, ensure_ascii=False) + "\n").encode()


def manifest_problem(manifest: Mapping[str, Any]) -> str:
    """Why the content of a manifest is not what was written; "" where it is, or where its release wrote no checksum."""
    said = {name: value for name, value in manifest.items() if name != CHECKSUM}
    if CHECKSUM not in manifest:
        # Whoever wrote the checksum of the probes wrote this one too.
        return "it has lost its checksum" if OF_PROBES in manifest else ""
    return "" if manifest[CHECKSUM] == _said(said) else "what it says does not fit its checksum"


def _said(manifest: Mapping[str, Any]) -> str:
    return sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


# What all rows of a run have in common: which settings these are, and in what two of them differ.

FIXED = (
    "model_type", "weight_digest", "probe_digest", "dtype", "profile", "positions", "box_source", "image_options",
    "shard_images", "shard_probes", "limit", "execution", "batch_images", "scorer", "keep_scores", "longest_answer",
)  # fmt: skip
"""What may never change under one folder: rows with different values here do not belong in one table."""
VERSIONS = ("torch", "transformers")
"""Entries of a manifest's ``versions`` that decide the last bits of rows."""
SEVERAL_MACHINES = ("batch_tokens", "device", "instructions", *VERSIONS)
"""Where parts of a run that share no disk may differ; their rows then name the mixture."""
FIXED_ONCE_SAID = (
    "attention", "checkpoint_files", "checkpoint_subfolders", "clip_files", "engine_digest", "threads",
    *SEVERAL_MACHINES,
)  # fmt: skip
"""Likewise, but not every command says it, as one without CLIP or on a GPU does not: that agrees with anything."""
ACCEPTABLE = ("batch_images", *(field for field in FIXED_ONCE_SAID if field not in ("clip_files", "engine_digest")))
"""What a command may change where it says so: all values then stay in the manifest, and rows say which was theirs."""
ONLY_NAMED = ("sightline", "python")
"""Versions that may change without a word; the manifest keeps all of them too."""
CHECKPOINTS = {
    "checkpoint_files": "the checkpoint",
    "checkpoint_subfolders": "the checkpoint",
    "clip_files": "the CLIP checkpoint",
}
"""Fields that hold a digest per file, and whose files they are."""
MODEL = ("model_type", "weight_digest")
"""Fields that tell one model from another."""
NOT_IN_IDENTITY = {
    "execution": "eager", "batch_images": 1, "scorer": "yes_no", "shard_probes": None, "keep_scores": False,
    "longest_answer": 32,
}  # fmt: skip
"""Values of settings that leave a run's identity as it would be without them, so that a setting which a later version
adds, at the value that was the only one before, changes nobody's identity."""


def identity_of(manifest: Mapping[str, Any]) -> str:
    """A digest of what may never change under one folder, so that a file can say whose it is.

    ``NOT_IN_IDENTITY`` says what does not enter.
    """
    told = {field: manifest.get(field) for field in FIXED}
    settings = {field: value for field, value in told.items() if value not in (None, NOT_IN_IDENTITY.get(field))}
    return texts_digest([json.dumps(settings, sort_keys=True)])


def setting(manifest: Mapping[str, Any], field: str) -> Any:
    """A field of a manifest, or an entry of its ``versions``; None where it says nothing."""
    within = field in (*VERSIONS, *ONLY_NAMED)
    return (manifest.get("versions") or {}).get(field) if within else manifest.get(field)


def recorded_settings(manifest: Mapping[str, Any], field: str) -> list[Any]:
    """All values that rows of a run were made with, the first first; none where it never said."""
    first = setting(manifest, field)
    found: list[Any] = (manifest.get("mixed") or {}).get(field) or ([] if first is None else [first])
    return found


def settings_difference(
    old: Mapping[str, Any], new: Mapping[str, Any], *, without: tuple[str, ...] = ()
) -> tuple[str, str] | None:
    """The first field in which settings do not agree with those of a run, and how, in words; None where they do."""
    differing = (field for field in _differing(old, new) if field not in without)
    return next(((field, _difference(field, old, new)) for field in differing), None)


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    for field in FIXED:
        if field in new and old.get(field) != new[field] and new[field] not in recorded_settings(old, field):
            yield field
    for field in FIXED_ONCE_SAID:
        now, had = setting(new, field), recorded_settings(old, field)
        if now is not None and had and now not in had:
            yield field


def with_all_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A command's settings over those of the run it goes on with, where they may differ: what was first stays, and
    ``mixed`` lists what came later."""
    kept = dict(new)
    mixed = {field: list(values) for field, values in (old.get("mixed") or {}).items()}
    versions = {**(new.get("versions") or {}), **(old.get("versions") or {})}
    for field in (*ACCEPTABLE, *ONLY_NAMED):
        had = recorded_settings(old, field)
        values = [*had, *(now for now in recorded_settings(new, field) if now not in had)]
        if len(values) > 1:
            mixed[field] = values
        if field in old:
            kept[field] = old[field]
    return {**kept, **({"versions": versions} if versions else {}), **({"mixed": mixed} if mixed else {})}


def _difference(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How a recorded manifest and a command differ in a field: in names where there are some, not in digests."""
    if field in MODEL:
        if model_words(old) == model_words(new):
            return f"of {model_words(old)} with other weights"
        return f"of {model_words(old)}, this command has {model_words(new)}"
    if field in CHECKPOINTS:
        before, now = recorded_settings(old, field)[-1], new[field]
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        one, other = (files.get(names[0], "none").removeprefix("sha256:")[:8] for files in (before, now))
        both = f"{names[0]}: {one}, this command has {other}"
        return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]} ({both})"
    if field == "engine_digest":
        before, now = old.get("engine") or {}, new.get("engine") or {}
        told = [name for name in sorted({*before, *now} - {"untold"}) if before.get(name) != now.get(name)]
        return f"of an engine with {', '.join(f'{each} {before.get(each)}, now {now.get(each)}' for each in told)}"
    if field == "probe_digest":
        return "over other probes"
    had = ", ".join(map(_short, recorded_settings(old, field) or [old.get(field)]))
    return f"with {field} {had}, this command has {_short(setting(new, field))}"


def model_words(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('model', 'another model')} ({manifest.get('model_type', 'unknown')})"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."


# Rows that were not all computed alike, to the last bit: under which settings, and how many under each.

COLUMNS = ("device", "attention", "versions", "conditions")
"""Columns of rows that say how they were computed."""
Alike: TypeAlias = tuple[str | None, ...]
"""What a row says in them."""
NAMED_VERSIONS = ("sightline", *VERSIONS)
HALVED = "halved"


def count_settings(piece: ShardPiece, owner: Owner) -> Counter[Alike]:
    """How many rows of a piece say the same in ``COLUMNS``, None where they have no such column.

    A footer says it where all rows of its file do, as nearly always; else they are read.
    """
    opened = owner.opened(piece.file, footer_alone=True)
    parquet, mark = opened
    start, stop = bounds(piece, mark, parquet.metadata.num_rows)
    if (told := _told_by_footer(parquet.metadata)) is not None:
        return Counter({told: stop - start})
    found: Counter[Alike] = Counter()
    names = [field.name for field in parquet.schema_arrow if field.name in COLUMNS and pa.types.is_string(field.type)]
    for table in owner.batches_of(opened, piece, names):
        for line in table.group_by(names).aggregate([([], "count_all")]).to_pylist():
            found[tuple(line.get(name) for name in COLUMNS)] += line["count_all"]
    return found


def _told_by_footer(metadata: pq.FileMetaData) -> Alike | None:
    """What all rows of a file say, if its statistics show that they say the same."""
    said: dict[str, set[Any]] = {name: set() for name in COLUMNS}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in said:
                known = column.statistics
                if known is None or known.null_count or not known.has_min_max or not isinstance(known.min, str):
                    return None
                said[column.path_in_schema] |= {known.min, known.max}
    if any(len(values) > 1 for values in said.values()):
        return None
    return tuple(next(iter(said[name]), None) for name in COLUMNS)


def settings_of(alike: Mapping[Alike, int]) -> dict[str, Counter[Any]]:
    """By setting, how many rows have each value."""
    found: dict[str, Counter[Any]] = {}
    for (device, attention, versions, conditions), rows in alike.items():
        named = {name: value for name, value in _object(versions).items() if name in NAMED_VERSIONS}
        for name, value in {"device": device, "attention": attention, **named, **_object(conditions)}.items():
            if value is not None:
                found.setdefault(name, Counter())[value] += rows
    return found


def mixture_of(pieces: Iterable[tuple[ShardPiece, Owner]]) -> str:
    """In words what differs between rows of some pieces; "" where nothing does."""
    alike: Counter[Alike] = Counter()
    for piece, owner in pieces:
        alike += count_settings(piece, owner)
    return mixture_words(settings_of(alike))


def mixture_words(found: Mapping[str, Counter[Any]]) -> str:
    several = [
        f"{name} {', '.join(f'{value} ({_rows(rows)})' for value, rows in values.items())}"
        for name, values in found.items()
        if name != HALVED and len(values) > 1
    ]
    if halved := found.get(HALVED, Counter())[True]:
        several.append(f"{_rows(halved)} in batches that were halved when memory ran out")
    return f"rows that were not computed alike, so that last bits may differ: {'; '.join(several)}" if several else ""


def unnamed_settings(found: Mapping[str, Counter[Any]], manifest: Mapping[str, Any]) -> list[str]:
    """What rows say of themselves and the manifest of their run does not."""
    return [
        f"{name} {value}"
        for name, values in found.items()
        for value in values
        if (had := recorded_settings(manifest, name)) and value not in had
    ]


def _object(text: str | None) -> dict[str, Any]:
    """Plain values by name; of what nobody wrote, none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str | int | float | bool)}


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"


# What whoever computes a run finds out on the way, as small whole files beside ``run.json``.
#
# Several processes may write to one run folder, so none of them changes a file that others change too: every note is a
# file of its own, and reading the manifest puts them together.

NOTES = "notes"
MOST_ERRORS, MOST_LOSSES = 2, 3
"""How often a piece of work may fail, and how often it may end the process that works on it, before it is set aside."""


@dataclass(frozen=True)
class Failure:
    """One time that some work went wrong."""

    task: str
    arms: tuple[str, ...]
    reason: str
    lost: bool
    """Whether it ended the process that worked on it."""


class Notes:
    """Those of one run folder. Names say what a note is about: ``bad.00003``, ``aside.<arm>``, ``failed.<task>.1``."""

    def __init__(self, files: Listing) -> None:
        """``files`` are those of the run folder; of a URL, at its last look."""
        self._place, self._files = files.folder / NOTES, files
        self._read: dict[str, dict[str, Any]] = {}

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        make_within(self._place.parent, self._place)
        write_whole(self._file(name), _encoded(content))
        self._files.added(self._file(name))

    def add(self, name: str, content: Mapping[str, Any]) -> None:
        """One more note under a name, numbered: none of several processes overwrites another's."""
        make_within(self._place.parent, self._place)
        number = 1
        while not create_new(self._file(f"{name}.{number}"), _encoded(content)):
            number += 1
        self._files.added(self._file(f"{name}.{number}"))

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._read.pop(name, None)
            remove(self._file(name))
            self._files.removed(self._file(name))

    def add_failure(self, failure: Failure) -> None:
        """Some work went wrong; ``failures`` says when it is set aside."""
        self.add(f"failed.{failure.task}", asdict(failure))

    def clear_failures(self, arms: Iterable[str]) -> None:
        """A new command tries again what failed under the arms that it names. For whoever is alone in the folder."""
        named, failed = set(arms), self.of_kind("failed")
        self.remove(name for name, note in failed.items() if named & set(note["arms"]))

    def add_setup(self, ms: float) -> None:
        """A process' time for compiling and capturing."""
        self.add(f"setup.{this_process().token}", {"setup_ms": ms})

    def write_bad_images(self, shard: int, reasons: Mapping[str, str], whole: Mapping[str, str] | None = None) -> None:
        """Images of a shard that cannot be read, before rows of the others are written.

        ``whole`` are digests of files that are whole and that the model cannot read: no use in trying them again.
        """
        digests = {name: {"digest": digest} for name, digest in (whole or {}).items()}
        found = {name: {"shard": shard, "reason": why, **digests.get(name, {})} for name, why in reasons.items()}
        self.write(f"bad.{shard:05d}", found)

    def names(self, kind: str) -> list[str]:
        """Of one kind, in order; one listing."""
        files = sorted(file.name for file in self._files.within(NOTES))
        return [name.removesuffix(".json") for name in files if name.startswith(f"{kind}.") and name.endswith(".json")]

    def of_kind(self, kind: str) -> dict[str, dict[str, Any]]:
        """By name. One that another process removed meanwhile is left out."""
        found = {}
        for name in self.names(kind):
            try:
                content = json.loads(read_whole(self._file(name)))
                if not isinstance(content, dict):
                    raise ValueError("no mapping")
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                raise SightlineError(f"{self._file(name)} cannot be read ({error}); delete it") from None
            found[name] = content
        return found

    def failures(self) -> Failures:
        """What went wrong and was not forgiven since. A note never changes: it is read once."""
        names = self.names("failed")
        if any(name not in self._read for name in names):
            self._read = self.of_kind("failed")
        known = [self._read[name] for name in names if name in self._read]
        return Failures(Failure(**{**note, "arms": tuple(note["arms"])}) for note in known)

    def _file(self, name: str) -> Place:
        return self._place / f"{name}.json"


class Failures(list[Failure]):
    """What went wrong in a run so far."""

    @cached_property
    def _by_work(self) -> dict[tuple[str, str], list[Failure]]:
        found: dict[tuple[str, str], list[Failure]] = {}
        for failure in self:
            for arm in failure.arms:
                found.setdefault((failure.task, arm), []).append(failure)
        return found

    def times(self, task: str) -> int:
        """How often something went wrong with a task."""
        return sum(failure.task == task for failure in self)

    def losses(self, task: str, arm: str) -> int:
        """How often an arm of a task ended its worker."""
        return sum(failure.lost for failure in self._by_work.get((task, arm), []))

    def verdict(self, task: str, arm: str) -> str:
        """Why an arm of a task is set aside; "" where it is not."""
        own = self._by_work.get((task, arm), [])
        errors, losses = [one for one in own if not one.lost], [one for one in own if one.lost]
        if len(errors) >= MOST_ERRORS:
            return f"it failed {len(errors)} times ({errors[-1].reason})"
        if len(losses) >= MOST_LOSSES:
            return f"it ended its worker {len(losses)} times ({losses[-1].reason})"
        return ""

    def set_aside(self) -> dict[str, dict[str, str]]:
        """By task and arm, with the reason."""
        found: dict[str, dict[str, str]] = {}
        for task, arm in self._by_work:
            if reason := self.verdict(task, arm):
                found.setdefault(task, {})[arm] = reason
        return found


def _encoded(content: Mapping[str, Any]) -> bytes:
    return (json.dumps(content, ensure_ascii=False) + "\n").encode()
