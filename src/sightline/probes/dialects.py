"""One probe as one JSON object: in our own dialect, and in the one of the paper's artifact."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any, Literal

from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.errors import SightlineError
from sightline.probes.fetched_images import check_image_name, strip_image_prefix
from sightline.probes.regions import four_numbers, is_storable

Dialect = Literal["sightline", "artifact"]
"""How rows are written: as ours, or as the paper's artifact writes them (``--layout``)."""

OWN_KEYS = tuple(each.name for each in fields(Probe))
_NEEDED = OWN_KEYS[: OWN_KEYS.index("boxes")]
"""Keys that a row always has; of the others those that do not hold their default."""

ARTIFACT_KEYS = (
    "id", "sample_id", "probe", "probe_count", "rice_view", "dataset", "source_dataset", "image", "image_id",
    "question", "target_answer", "task_family", "relation", "base_relation", "bbox_source", "has_bbox", "base_has_bbox",
    "answer", "target_text", "source_text", "binary_polarity", "hard_type", "token_area", "token_area_rank",
    "evidence_regions", "ocr_regions", "evidence_region_count",
)  # fmt: skip
"""The artifact's key order; anything else it carries follows."""

_ARTIFACT_CONSTANTS = {
    "probe_count": 1,
    "rice_view": "original",
    "dataset": "TextOCR-HardYesNo",
    "task_family": "ocr_text",
    "relation": "ocr_exact_text_visible",
    "base_relation": "ocr_exact_text_visible",
}
_TRUE_BOXES = ("oracle_evidence_regions", "oracle_ocr_regions")
_WHOLE_IMAGE: Box = (0.0, 0.0, 1.0, 1.0)


def own_row(probe: Probe) -> dict[str, Any]:
    """The probe's fields in declaration order, without those that hold their default."""
    row = {key: getattr(probe, key) for key in OWN_KEYS} | {"extra": dict(probe.extra)}
    return {key: _as_lists(value) for key, value in row.items() if key in _NEEDED or value != _USUAL[key]}


def _as_lists(value: Any) -> Any:
    return [_as_lists(each) for each in value] if isinstance(value, tuple) else value


def probe_from_own(row: Mapping[str, Any]) -> Probe:
    unknown = sorted(set(row) - set(OWN_KEYS))
    if unknown:
        raise SightlineError(f"unknown key {unknown[0]!r}; put what Sightline does not know under 'extra'")
    probe = Probe(**{key: _READERS[key](row, key) for key in OWN_KEYS if key in row or key in _NEEDED})
    check_open(probe)
    return probe


def check_open(probe: Probe) -> None:
    """What makes an open question consistent; above all, that what selectors look for is in the question itself."""
    if probe.is_open != bool(probe.answers):
        raise SightlineError(
            f"label {probe.label!r} with {len(probe.answers)} answers: open questions, and only they, have some"
        )
    if probe.roles and len(probe.roles) != len(probe.regions):
        raise SightlineError(
            f"regions and roles differ in number ({len(probe.regions)} and {len(probe.roles)}); give each region one "
            "role, or none"
        )
    if probe.is_open and probe.target_text not in probe.question:
        raise SightlineError(
            f"target_text {probe.target_text!r} is not in the question; selectors must not be told the answer"
        )


def artifact_row(probe: Probe, image_prefix: str = "") -> dict[str, Any]:
    """The artifact's row. What it derives from other fields is derived; ``extra`` has the last word."""
    if probe.is_open:
        raise SightlineError(f"probe '{probe.id}' is an open question, which the artifact's layout cannot hold")
    visible = [list(box) for box in probe.visible_boxes]
    row: dict[str, Any] = {
        "id": probe.id,
        "sample_id": probe.id,
        "probe": probe.view,
        "source_dataset": "",
        "image": str(PurePosixPath(image_prefix, probe.image)),
        "image_id": probe.image_id,
        "question": probe.question,
        "target_answer": probe.label,
        "bbox_source": "",
        "has_bbox": bool(visible),
        "base_has_bbox": bool(visible),
        "answer": probe.label,
        "target_text": probe.target_text,
        "source_text": probe.source_text,
        "binary_polarity": _polarity(probe.label),
        "hard_type": probe.kind,
        "evidence_regions": visible,
        "ocr_regions": visible,
        "evidence_region_count": len(visible),
    }
    row |= _ARTIFACT_CONSTANTS | dict(probe.extra)
    masked = not _tells_occlusion(row, probe)
    if masked:
        row |= {"rice_view": "mask_regions", "mask_regions": [list(box) for box in probe.occlude]}
    if "original_image" in row:
        row["original_image"] = str(PurePosixPath(image_prefix, check_image_name(row["original_image"])))
    ordered = {key: row[key] for key in ARTIFACT_KEYS if key in row}
    if probe.boxes is not None:
        ordered |= {key: [list(box) for box in probe.regions] for key in _TRUE_BOXES}
    return ordered | {key: row[key] for key in (*probe.extra, *(("mask_regions",) if masked else ()))}


def _tells_occlusion(row: Mapping[str, Any], probe: Probe) -> bool:
    """Whether the row says what is grayed in the probe's image, in one of the artifact's own ways."""
    if not probe.occlude or row.get("control_type") == "blank":
        return True
    try:
        return _occluded(row, _boxes(row, "evidence_regions")) == probe.occlude
    except SightlineError:
        return False


def probe_from_artifact(row: Mapping[str, Any], image_prefix: str | None = None) -> Probe:
    """Reads an artifact row.

    Where ``oracle_evidence_regions`` is present, ``evidence_regions`` holds what a selector was shown (jittered,
    detected or missing boxes): the oracle becomes ``regions``, the shown boxes become ``boxes``. A blank-image control
    becomes its original image with the whole of it grayed, which has the same pixels and needs no further file.
    """
    label = _label(row, "target_answer")
    if row.get("binary_polarity", _polarity(label)) != _polarity(label):
        raise SightlineError(f"target_answer {label!r} contradicts binary_polarity {row['binary_polarity']!r}")
    shown = _boxes(row, "evidence_regions")
    simulated = "oracle_evidence_regions" in row
    extra = {key: value for key, value in row.items() if key != "image"}
    if "original_image" in row:
        extra["original_image"] = _image(row["original_image"], image_prefix)
    blank = row.get("control_type") == "blank" and "original_image" in row
    probe = Probe(
        id=_text(row, "sample_id" if "sample_id" in row else "id"),
        image=extra["original_image"] if blank else _image(row.get("image"), image_prefix),
        image_id=_text(row, "image_id"),
        question=_text(row, "question"),
        label=label,
        target_text=_text(row, "target_text", empty=True),
        source_text=_text(row, "source_text", empty=True),
        regions=_boxes(row, "oracle_evidence_regions") if simulated else shown,
        boxes=shown if simulated else None,
        kind=_text(row, "hard_type", empty=True),
        view=_text(row, "probe") if "probe" in row else ORIGINAL,
        occlude=(_WHOLE_IMAGE,) if blank else _occluded(row, shown),
    )
    # Keep only what cannot be derived again, so that both dialects of one set have the same content and digest.
    derived = artifact_row(replace(probe, occlude=()))
    kept = {key: value for key, value in extra.items() if key not in derived or derived[key] != value}
    return replace(probe, extra=_extra({"extra": kept}))


def _occluded(row: Mapping[str, Any], evidence: tuple[Box, ...]) -> tuple[Box, ...]:
    view = row.get("rice_view", "original")
    if view in ("original", ORIGINAL):
        return ()
    if view == "evidence_masked":
        return evidence
    if view in ("mask_regions", "random_evidence_sized_masked"):
        return _boxes(row, "mask_regions")
    raise SightlineError(f"image view {view!r} is not one of original, evidence_masked, mask_regions")


def _polarity(label: str) -> str:
    return "positive" if label == "yes" else "negative"


def _label(row: Mapping[str, Any], key: str) -> Any:
    value = row.get(key)
    if value not in ("yes", "no"):
        raise SightlineError(f"unknown label: {key} is {value!r}, expected 'yes' or 'no'")
    return value


def _text(row: Mapping[str, Any], key: str, *, empty: bool = False) -> str:
    value = row.get(key, "" if empty else None)
    if not isinstance(value, str) or not (empty or value.strip()):
        raise SightlineError(
            f"{key} is {'missing' if value is None else repr(value)}, expected {'text' if empty else 'non-empty text'}"
        )
    if not is_storable(value):
        raise SightlineError(f"{key} {value!r} holds half of a surrogate pair, which no text file can store")
    return value


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    values = row.get(key, ())
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise SightlineError(f"{key} is {values!r}, expected a list of texts")
    return tuple(_text({f"{key}[{index}]": value}, f"{key}[{index}]") for index, value in enumerate(values))


def _image(value: object, prefix: str | None) -> str:
    return check_image_name(strip_image_prefix(value, prefix) if prefix and isinstance(value, str) else value)


def check_can_be_stored(value: object, what: str) -> None:
    """Refuses what Python's parser takes for JSON and no other does."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except ValueError:
        raise SightlineError(f"{what} holds a number or text that JSON in UTF-8 cannot store") from None


def _extra(row: Mapping[str, Any], key: str = "extra") -> dict[str, Any]:
    value = row[key]
    if not isinstance(value, dict):
        raise SightlineError("'extra' must be an object")
    check_can_be_stored(value, "'extra'")
    return value


def _boxes(row: Mapping[str, Any], key: str) -> tuple[Box, ...]:
    values = row.get(key)
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise SightlineError(f"{key} is {'missing' if values is None else repr(values)}, expected a list of boxes")
    return tuple(_box(value, f"{key}[{index}]") for index, value in enumerate(values))


def _box(value: Any, where: str) -> Box:
    numbers = four_numbers(value)
    if numbers is None or len(value) != 4:
        raise SightlineError(f"{where} {value!r} is not a box of four finite numbers")
    x1, y1, x2, y2 = numbers
    if not (0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0):
        raise SightlineError(f"{where} {list(value)} is not x1 < x2, y1 < y2 within the image (fractions from 0 to 1)")
    return (x1, y1, x2, y2)


_USUAL = {key: getattr(Probe("", "", "", "", "no", "", "", ()), key) for key in OWN_KEYS}
_READERS: dict[str, Callable[[Mapping[str, Any], str], Any]] = {
    **dict.fromkeys(("id", "image_id", "question", "view"), _text),
    **dict.fromkeys(("target_text", "source_text", "kind", "task", "decoy"), partial(_text, empty=True)),
    **dict.fromkeys(("regions", "occlude"), _boxes),
    **dict.fromkeys(("answers", "roles"), _texts),
    "image": lambda row, key: check_image_name(row.get(key)),
    "label": lambda row, key: "open" if row.get(key) == "open" else _label(row, key),
    "boxes": lambda row, key: None if row[key] is None else _boxes(row, key),
    "extra": _extra,
}
"""Key of our own rows -> what reads it from a row, and refuses what it is not."""
