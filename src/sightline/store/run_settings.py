"""What all rows of a run have in common: which settings these are, and in what two of them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from sightline.store.table_digest import texts_digest

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
