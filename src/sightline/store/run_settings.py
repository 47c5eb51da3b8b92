"""What all rows of a run have in common: which settings these are, and in what two of them differ."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sightline.store.table_digest import texts_digest

FIXED = (
    "model_type", "weight_digest", "probe_digest", "dtype", "profile", "positions", "box_source", "image_options",
    "shard_images", "shard_probes", "limit", "execution", "batch_images", "scorer", "keep_scores",
)  # fmt: skip
"""What may never change under one folder: rows with different values here do not belong in one table."""
FIXED_ONCE_SAID = ("attention", "checkpoint_files", "clip_files", "threads")
"""Likewise, but an earlier release did not say, nor does a command without CLIP or on a GPU: that agrees with
anything."""
CHECKPOINTS = {"checkpoint_files": "the checkpoint", "clip_files": "the CLIP checkpoint"}
"""Fields that hold a digest per file, and whose files they are."""
MODEL = ("model_type", "weight_digest")
"""Fields that tell one model from another."""
BEFORE = {"execution": "eager", "batch_images": 1, "scorer": "yes_no", "shard_probes": None, "keep_scores": False}
"""What runs were made with before the manifest said so."""


def identity_of(manifest: Mapping[str, Any]) -> str:
    """A digest of what may never change under one folder, so that a file can say whose it is.

    What is as it was before a manifest named it does not enter: a setting that a later release adds changes nothing.
    """
    settings = {field: manifest.get(field) for field in FIXED if manifest.get(field) != BEFORE.get(field)}
    return texts_digest([json.dumps(settings, sort_keys=True)])


def settings_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """In what settings do not agree with those of a run, in words; None where they do."""
    said = [field for field in FIXED_ONCE_SAID if field in old]
    differing = (field for field in (*FIXED, *said) if field in new and old.get(field) != new[field])
    return next((_difference(field, old, new) for field in differing), None)


def _difference(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How a recorded manifest and a command differ in a field: in names where there are some, not in digests."""
    if field in MODEL:
        if model_words(old) == model_words(new):
            return f"of {model_words(old)} with other weights"
        return f"of {model_words(old)}, this command has {model_words(new)}"
    if field in CHECKPOINTS:
        before, now = old[field], new[field]
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]}"
    if field == "probe_digest":
        return "over other probes"
    return f"with {field} {_short(old.get(field))}, this command has {_short(new[field])}"


def model_words(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('model', 'another model')} ({manifest.get('model_type', 'unknown')})"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
