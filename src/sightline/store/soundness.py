"""What a run folder must hold to be read: whatever no writer leaves is refused by file, line or column."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.row import image_schema, row_schema
from sightline.errors import SightlineError
from sightline.places import Place, open_lines, told_of
from sightline.probes.dialects import probe_from_own
from sightline.store.marks import texts_digest

MOST_SHARDS = 10_000_000
"""Of a run; a larger number is damage, and counting so many would take for ever."""
OBJECTS = ("bad_images", "set_aside", "inputs", "versions", "boxes", "image_options", "imports")
"""What a manifest holds by name, where it has it."""
TEXTS = (
    "model", "model_type", "weight_digest", "probe_digest", "dtype", "positions", "profile", "box_source", "device",
    "created", "attention", "scorer", "execution", "images",
)  # fmt: skip
"""What it says in words, where it says it."""
ALWAYS = (
    "arm", "plain_arm", "selector", "arguments", "budget", "keep", "n_tokens", "k_tokens", "positions", "intervention",
    "probe_id", "image_id", "image_key", "view", "label", "predicted", "correct", "n_regions", "kept_mask",
)  # fmt: skip
"""Columns of a row that are never null."""
SHARES = ("keep", "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region")
"""Columns between 0 and 1, where they are not null."""
OWN_NUMBERS = ("margin", "score", "loss_yes", "loss_no")
"""Columns of scorers that everything computes with."""
OF_IMAGES = ("image_key", "image", "image_id", "digest", "width", "height", "layout", "cells", "preview")
"""Columns of an image record that are never null."""
ROUNDING = 1e-6
WAY_OUT = "delete it and run the same command again"


def sound_manifest(found: Any, path: Place) -> dict[str, Any]:
    """The content of ``run.json``, if it is one."""

    def refuse(what: str) -> None:
        raise SightlineError(f"{path} is damaged: {what}; restore it or start anew")

    if not isinstance(found, dict):
        refuse("it is no JSON object")
    found = {"shards": 0, **found}
    arms, shards = found.get("arms"), found["shards"]
    if not (isinstance(arms, list) and all(isinstance(arm, str) and arm for arm in arms)):
        refuse("'arms' is no list of arms")
    if len(set(arms)) < len(arms):
        refuse("'arms' names one twice")
    if type(shards) is not int or not 0 <= shards <= MOST_SHARDS:
        refuse(f"'shards' is {shards!r}")
    for name in OBJECTS:
        if not isinstance(found.get(name) or {}, dict):
            refuse(f"'{name}' is no object")
    for name in TEXTS:
        if not isinstance(found.get(name), str | None):
            refuse(f"'{name}' is no text")
    if not _is_part(found.get("part")):
        refuse(f"'part' is {found['part']!r}")
    for name, entry in (found.get("bad_images") or {}).items():
        if not (isinstance(entry, dict) and isinstance(entry.get("reason"), str) and type(entry.get("shard")) is int):
            refuse(f"'bad_images' does not say why {name!r} is one")
    return dict(found)


def _is_part(part: Any) -> bool:
    """None, or K and N of part K of N."""
    if not isinstance(part, list) or len(part) != 2 or not all(type(number) is int for number in part):
        return part is None
    return bool(1 <= part[0] <= part[1])


def sound_probes(path: Place, saying: str = "") -> Iterator[dict[str, Any]]:
    """The records of ``probes.jsonl`` one after the other, without its header; only those whose line has some text."""
    try:
        with told_of(path, "read"), open_lines(path) as lines:
            for number, line in enumerate(lines, start=1):
                record = _probe_record(line, path, number) if saying in line and line.strip() else {}
                if record and "sightline_probes" not in record:
                    yield record
    except OSError as error:
        raise SightlineError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SightlineError(f"{path} is damaged: it is not UTF-8 text (byte {error.start}); restore it") from None


def _probe_record(line: str, path: Place, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise SightlineError("it is no JSON object")
        if "sightline_probes" not in record:
            probe_from_own(record)
        return record
    except (SightlineError, ValueError, RecursionError) as problem:
        raise SightlineError(
            f"{path} line {number} is damaged: {problem}; restore the file, or run the same command again"
        ) from None


def sound_rows(table: pa.Table, arm: str, file: Place) -> pa.Table:
    """The rows of one file of an arm, with the columns of today, if every column holds what it is for."""
    _refuse_types(table, row_schema(), file)
    for name in OWN_NUMBERS:
        if name in table.column_names and not pa.types.is_floating(table.schema.field(name).type):
            raise _damaged(file, f"column '{name}' holds no numbers")
    _refuse_nulls(table, ALWAYS, file)
    if len(table) and pc.unique(table.column("arm")).to_pylist() != [arm]:
        raise _damaged(file, f"it holds rows of another arm than {arm}")
    asked = table.select(["probe_id", "view"]).to_pandas()
    if asked.duplicated().any():
        raise _damaged(file, f"it answers probe '{asked['probe_id'][asked.duplicated()].iloc[0]}' twice")
    counts, kept = table.column("n_tokens"), table.column("k_tokens")
    _refuse_where(pc.or_(pc.less(counts, 1), pc.less(kept, 0)), file, "'n_tokens' or 'k_tokens' is no number of tokens")
    bits = pc.divide(pc.add(counts, 7), 8)
    for name in ("kept_mask", "lineage_mask"):
        length = pc.binary_length(table.column(name))
        # An arm that is shown a smaller image has fewer cells than the full prefix has tokens.
        _refuse_where(pc.greater(length, bits), file, f"'{name}' has more bits than there are tokens")
    for name in SHARES:
        column = table.column(name)
        outside = pc.or_(pc.less(column, -ROUNDING), pc.greater(column, 1 + ROUNDING))
        _refuse_where(pc.or_(outside, pc.is_nan(column)), file, f"'{name}' is no share")
    _refuse_where(pc.less(table.column("n_regions"), 0), file, "'n_regions' is no number of regions")
    _refuse_json(table, "arguments", lambda value: isinstance(value, dict), file)
    _refuse_json(table, "decided_on", lambda value: isinstance(value, dict), file)
    return table


def sound_images(table: pa.Table, file: Place) -> pa.Table:
    """The image records of one file, with the columns of today, likewise."""
    _refuse_types(table, image_schema(), file)
    _refuse_nulls(table, OF_IMAGES, file)
    sides = pc.or_(pc.less(table.column("width"), 1), pc.less(table.column("height"), 1))
    _refuse_where(sides, file, "an image has no pixels")
    cells = table.column("cells")
    length = pc.binary_length(cells)
    partial = pc.not_equal(pc.multiply(pc.divide(length, 16), 16), length)
    _refuse_where(pc.or_(partial, pc.equal(length, 0)), file, "'cells' are not four numbers each")
    _refuse_json(table, "layout", _is_layout, file)
    boxes = pc.list_flatten(table.column("detail_boxes"))
    _refuse_where(pc.not_equal(pc.list_value_length(boxes), 4), file, "'detail_boxes' are not four numbers each")
    return table


def under_one_another(tables: Iterable[tuple[Place, pa.Table]], empty: pa.Schema) -> pa.Table:
    """Tables with the same columns as one, columns in the order of the first: all files of a run have the same ones."""
    found = list(tables)
    if not found:
        return empty.empty_table()
    first, table = found[0]
    for file, other in found[1:]:
        if set(other.column_names) != set(table.column_names):
            odd = sorted(set(other.column_names) ^ set(table.column_names))[0]
            raise _damaged(file, f"it has other columns than {first.name} of {first.parent.name} ({odd})")
        for name in table.column_names:
            if other.schema.field(name).type != table.schema.field(name).type:
                raise _damaged(file, f"column '{name}' is of another type than in {first.parent.name}/{first.name}")
    return pa.concat_tables([one.select(table.column_names) for _, one in found])


def _damaged(file: Place, what: str) -> SightlineError:
    return SightlineError(f"{file} is damaged: {what}; {WAY_OUT}")


def _refuse_types(table: pa.Table, schema: pa.Schema, file: Place) -> None:
    if len(set(table.column_names)) < len(table.column_names):
        raise _damaged(file, "it has a column twice")
    for field in schema:
        if field.name not in table.column_names:
            raise _damaged(file, f"it has no column '{field.name}'")
        if table.schema.field(field.name).type != field.type:
            raise _damaged(file, f"column '{field.name}' is {table.schema.field(field.name).type}, not {field.type}")


def _refuse_nulls(table: pa.Table, names: Iterable[str], file: Place) -> None:
    for name in names:
        if table.column(name).null_count:
            raise _damaged(file, f"column '{name}' has holes")


def _refuse_where(wrong: Any, file: Place, what: str) -> None:
    if pc.any(wrong).as_py():
        raise _damaged(file, what)


def _refuse_json(table: pa.Table, name: str, fits: Callable[[Any], bool], file: Place) -> None:
    for text in pc.unique(table.column(name)).to_pylist():
        try:
            sound = text is None or fits(json.loads(text))
        except (ValueError, RecursionError):
            sound = False
        if not sound:
            raise _damaged(file, f"column '{name}' holds {text[:60]!r}")


def _is_layout(value: Any) -> bool:
    """Blocks of (rows, columns)."""
    return isinstance(value, list) and all(
        isinstance(block, list) and len(block) == 2 and all(type(side) is int and side > 0 for side in block)
        for block in value
    )


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
    "attention", "checkpoint_files", "checkpoint_subfolders", "clip_files", "threads", *SEVERAL_MACHINES,
)  # fmt: skip
"""Likewise, but an earlier release did not say, nor does a command without CLIP or on a GPU: that agrees with
anything."""
ACCEPTABLE = ("batch_images", *(field for field in FIXED_ONCE_SAID if field != "clip_files"))
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
BEFORE = {
    "execution": "eager", "batch_images": 1, "scorer": "yes_no", "shard_probes": None, "keep_scores": False,
    "longest_answer": 32,
}  # fmt: skip
"""What runs were made with before the manifest said so."""


def identity_of(manifest: Mapping[str, Any]) -> str:
    """A digest of what may never change under one folder, so that a file can say whose it is.

    What is as it was before a manifest named it does not enter: a setting that a later release adds changes nothing.
    """
    settings = {field: manifest.get(field) for field in FIXED if manifest.get(field) != BEFORE.get(field)}
    return texts_digest([json.dumps(settings, sort_keys=True)])


def setting(manifest: Mapping[str, Any], field: str) -> Any:
    """A field of a manifest, or an entry of its ``versions``; None where it says nothing."""
    within = field in (*VERSIONS, *ONLY_NAMED)
    return (manifest.get("versions") or {}).get(field) if within else manifest.get(field)


def settings_had(manifest: Mapping[str, Any], field: str) -> list[Any]:
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
        if field in new and old.get(field) != new[field] and new[field] not in settings_had(old, field):
            yield field
    for field in FIXED_ONCE_SAID:
        now, had = setting(new, field), settings_had(old, field)
        if now is not None and had and now not in had:
            yield field


def with_all_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """A command's settings over those of the run it goes on with, where they may differ: what was first stays, and
    ``mixed`` lists what came later."""
    kept = dict(new)
    mixed = {field: list(values) for field, values in (old.get("mixed") or {}).items()}
    versions = {**(new.get("versions") or {}), **(old.get("versions") or {})}
    for field in (*ACCEPTABLE, *ONLY_NAMED):
        had = settings_had(old, field)
        values = [*had, *(now for now in settings_had(new, field) if now not in had)]
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
        before, now = settings_had(old, field)[-1], new[field]
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        one, other = (_digits(files.get(names[0])) for files in (before, now))
        both = f"{names[0]}: {one}, this command has {other}"
        return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]} ({both})"
    if field == "probe_digest":
        return "over other probes"
    had = ", ".join(map(_short, settings_had(old, field) or [old.get(field)]))
    return f"with {field} {had}, this command has {_short(setting(new, field))}"


def _digits(digest: str | None) -> str:
    return "none" if digest is None else digest.removeprefix("sha256:")[:8]


def model_words(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('model', 'another model')} ({manifest.get('model_type', 'unknown')})"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
