"""A task is a folder: task.json says what it is, items.jsonl what is asked, journal.sqlite what people said."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.annotate.item_making import MAKERS, EarlierLook, ImageFolder
from sightline.annotate.item_order import SamplingRule, drawn_items
from sightline.annotate.journal import Journal
from sightline.annotate.task_kinds import TaskKind, kind_named
from sightline.annotate.work_items import WorkItem, items_digest, items_text, read_items
from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.places.writing import make_folder, write_whole
from sightline.probes.image_name import resolve_image
from sightline.probes.images import image_digest
from sightline.probes.probe_file import ProbeSet

RECORD, ITEMS, JOURNAL = "task.json", "items.jsonl", "journal.sqlite"
VERSION = 1


@dataclass(frozen=True)
class TaskFolder:
    """An opened task."""

    path: Path
    record: dict[str, Any]
    items: tuple[WorkItem, ...]

    @property
    def kind(self) -> TaskKind:
        return kind_named(self.record["kind"])

    @property
    def journal(self) -> Journal:
        return Journal(self.path / JOURNAL)

    @property
    def images(self) -> Path:
        """Relative to the task folder, so that both can be moved together."""
        return self.path / str(self.record["images"])

    @cached_property
    def by_id(self) -> dict[str, WorkItem]:
        return {item.id: item for item in self.items}

    @cached_property
    def digest(self) -> str:
        return items_digest(self.items)

    def item(self, name: str) -> WorkItem:
        if name not in self.by_id:
            raise SightlineError(f"{self.path} has no item {name!r}")
        return self.by_id[name]

    def refuse_missing_pictures(self) -> None:
        """One line before anything is served; whether pixels changed is seen when a picture is shown."""
        for item in self.items:
            for view in item.views:
                if not resolve_image(self.images, view.image).is_file():
                    raise SightlineError(
                        f"picture {view.image} is not in {self.images}; put the folder back where it was"
                    )

    def picture(self, name: str, view: int) -> Path:
        """The file of one picture, if its pixels are those that the task was made of."""
        views = self.item(name).views
        if not 0 <= view < len(views):
            raise SightlineError(f"item {name!r} has no picture {view}")
        path = resolve_image(self.images, views[view].image)
        if not path.is_file():
            raise SightlineError(f"picture {path} is gone")
        if image_digest(path) != views[view].digest:
            raise SightlineError(f"picture {path} was changed after the task was made")
        return path


def create_task(
    path: Path, kind: str, probes: ProbeSet, images: Path, rule: SamplingRule, look: EarlierLook
) -> TaskFolder:
    """Draws the items and writes the folder in one step: it is whole or absent."""
    if path.exists():
        raise SightlineError(f"{path} exists already; a task is never begun anew over what people said")
    if not images.is_dir():
        raise SightlineError(f"--images: there is no folder {images}")
    make_folder(path.parent)
    items = drawn_items(MAKERS[kind_named(kind).name](probes.probes, ImageFolder(images), look), rule)
    record = {
        "sightline_task": VERSION,
        "kind": kind,
        "images": os.path.relpath(images.resolve(), path.resolve()),
        "probes_digest": probes.digest,
        "items_digest": items_digest(items),
        "sampling": asdict(rule),
    }
    made = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
    try:
        write_whole(made / ITEMS, items_text(items).encode())
        write_whole(made / RECORD, (json.dumps(record, indent=1) + "\n").encode())
        Journal.create(made / JOURNAL)
        made.chmod(0o755)
        made.rename(path)
    except OSError as problem:
        raise SightlineError(f"cannot make the task {path}: {problem.strerror or problem}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return TaskFolder(path, record, tuple(items))


def open_task(path: Path) -> TaskFolder:
    """Reads a task and refuses one whose items are not those that it was made with."""
    try:
        record = json.loads(read_text(path / RECORD))
    except FileNotFoundError:
        raise SightlineError(f"{path} is no task; make one with 'sightline annotate new'") from None
    except (OSError, ValueError) as problem:
        raise SightlineError(f"{path / RECORD} cannot be read: {problem}") from None
    if not isinstance(record, dict) or record.get("sightline_task") != VERSION:
        raise SightlineError(f"{path / RECORD} is not a task of version {VERSION}, which this Sightline reads")
    found = TaskFolder(path, record, tuple(read_items(path / ITEMS)))
    if found.digest != record.get("items_digest"):
        raise SightlineError(f"{path / ITEMS} was changed after the task was made; answers would be about other items")
    if not (path / JOURNAL).is_file():
        raise SightlineError(f"{path} has lost its {JOURNAL}; put it back from a copy")
    return found


def chosen_probes(items: Sequence[WorkItem]) -> frozenset[str]:
    """The ids of all probes that the items are about."""
    return frozenset(name for item in items for name in item.probes)
