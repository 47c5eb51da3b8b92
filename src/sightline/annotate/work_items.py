"""The items of a task: what is shown of each, and what is known of it that annotators are not shown."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.image_name import check_image_name
from sightline.probes.json_lines import read_objects
from sightline.probes.probe_file import canonical


@dataclass(frozen=True)
class PictureView:
    """One picture of an item."""

    caption: str
    image: str
    """File name relative to the image folder."""
    size: tuple[int, int]
    """Width and height in pixels."""
    digest: str
    """Of the image file: annotators of one task see the same pixels."""
    regions: tuple[Box, ...] = ()
    """Outlined for the annotator; empty where they are to draw them."""


@dataclass(frozen=True)
class WorkItem:
    """One thing to annotate. No model's answer is in it, so none can be shown."""

    id: str
    image_id: str
    question: str
    views: tuple[PictureView, ...]
    source_text: str = ""
    target_text: str = ""
    answers: tuple[str, ...] = ()
    """Accepted answers of an open question: what is evidence depends on them."""
    task: str = ""
    probes: tuple[str, ...] = ()
    """The probes that the decision on this item is about."""
    batch: int = 0
    stratum: str = ""
    """What a sample is spread over."""
    difficulty: str = ""
    """What the second sample of a batch is spread over."""
    second: bool = False
    """Whether a second person annotates it too."""
    suspicion: tuple[str, ...] = ()
    """Why it comes first. Never shown: it would lead the annotator."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of the artifact's manifest."""

    @property
    def shown(self) -> dict[str, Any]:
        """What the page gets; nothing that says why the item was chosen."""
        return {
            "id": self.id, "question": self.question, "source_text": self.source_text,
            "target_text": self.target_text, "answers": list(self.answers),
            "views": [{"caption": v.caption, "size": v.size, "regions": v.regions} for v in self.views],
        }  # fmt: skip


def items_text(items: Iterable[WorkItem]) -> str:
    return "".join(json.dumps(asdict(item), ensure_ascii=False, allow_nan=False) + "\n" for item in items)


def items_digest(items: Iterable[WorkItem]) -> str:
    """``sha256:`` over one canonical line per item, in order."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(canonical(asdict(item)).encode() + b"\n")
    return f"sha256:{digest.hexdigest()}"


def read_items(path: Path) -> list[WorkItem]:
    items: dict[str, WorkItem] = {}
    for number, row in read_objects(path):
        try:
            item = _item(row)
        except (TypeError, KeyError, ValueError) as problem:
            raise SightlineError(f"{path} line {number} is not an item of a task: {problem}") from None
        if item.id in items:
            raise SightlineError(f"{path} line {number}: item {item.id!r} occurs twice")
        items[item.id] = item
    if not items:
        raise SightlineError(f"{path} holds no items")
    return list(items.values())


def _item(row: dict[str, Any]) -> WorkItem:
    texts = ("answers", "probes", "suspicion")
    views = tuple(
        PictureView(
            str(view["caption"]),
            check_image_name(view["image"]),
            _size(view["size"]),
            str(view["digest"]),
            tuple((float(a), float(b), float(c), float(d)) for a, b, c, d in view["regions"]),
        )
        for view in row["views"]
    )
    return WorkItem(**{**row, "views": views, **{name: tuple(row[name]) for name in texts}})


def _size(value: Sequence[int]) -> tuple[int, int]:
    width, height = value
    return int(width), int(height)
