"""What stands where a file is expected: devices, pipes, sockets, links, names that no file has; read and written."""

import os
import shutil
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from sightline import load_run, read_probes
from sightline.auditing.config import read_config
from sightline.controls.text_replacement import reviewed_images
from sightline.cost.card import CostCard
from sightline.gate.rules import read_rules
from sightline.places.writing import append, refuse_unusable_file, write_whole
from sightline.policies.risk_adaptive import ranked_risks
from sightline.probes import verify_lock, write_probes
from sightline.probes.annotations import read_annotations
from sightline.probes.data_rows import write_text
from sightline.rows.source import read_probe_list
from sightline.selectors.masks import read_masks
from sightline_annotate.label_studio import read_label_studio
from tests.fuzz import mutations
from tests.fuzz.subjects.annotations import PROBES
from tests.fuzz.subjects.base import Subject
from tests.unit.annotate.sample_campaign import EVIDENCE, sample_task

KINDS = (
    "file", "absent", "zeros", "nothing", "full", "pipe", "socket", "folder", "link", "loop", "nowhere", "odd", "long",
)  # fmt: skip


def made(place: Path, kind: str, random: Random) -> Path:
    """Something of a kind under a name, nodes of our own."""
    if place.is_symlink() or place.exists():
        shutil.rmtree(place) if place.is_dir() and not place.is_symlink() else place.unlink()
    device = {"nothing": 3, "zeros": 5, "full": 7}.get(kind)
    if device is not None:
        os.mknod(place, stat.S_IFCHR | 0o666, os.makedev(1, device))
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(str(place))
    elif kind == "folder":
        place.mkdir()
    elif kind in ("link", "loop", "nowhere"):
        place.symlink_to({"link": "good", "loop": place.name, "nowhere": "none"}[kind])
    elif kind == "file":
        place.write_bytes(mutations.bytes_like(b'{"a": [1, 2]}\n', random))
    elif kind in ("odd", "long"):
        name = "a" * 300 if kind == "long" else mutations.text_like("name", random).replace("/", "|")
        return place.parent / (name or "x")
    return place


class Readers(Subject, name="odd files read", share=5):
    """Everything that reads a small file by its name."""

    def prepare(self) -> None:
        (self.folder / "good").write_text("p0\np1\n")
        self.task = sample_task(self.folder / "task", 2, EVIDENCE)
        self.probes = write_probes(self.folder / "probes.jsonl", PROBES)
        self.ways: dict[str, Callable[[Path], Any]] = {
            "config": lambda path: read_config(path, {}),
            "probes": read_probes,
            "rules": read_rules,
            "list": read_probe_list,
            "card": CostCard.read,
            "label studio": lambda path: read_label_studio(self.task, path),
            "masks": lambda path: read_masks.__wrapped__(str(path), "kept_indices", "", 0),
            "risks": lambda path: ranked_risks.__wrapped__(str(path), "learned_risk"),
            "reviewed": reviewed_images,
            "annotations": lambda path: read_annotations(path, {}, file_format=None, images=None),
            "lock": lambda path: verify_lock(path, self.probes),
            "run": load_run,
        }

    def make(self, random: Random) -> tuple[str, str, Path]:
        kind = random.choice(KINDS)
        return random.choice(list(self.ways)), kind, made(self.folder / "given", kind, random)

    def read(self, given: tuple[str, str, Path]) -> None:
        self.ways[given[0]](given[2])


class Writers(Readers, name="odd files written", share=5):
    """Everything that writes one file: what was no file is none afterwards, and a refusal leaves nothing."""

    def prepare(self) -> None:
        (self.folder / "good").write_text("old")
        self.ways: dict[str, Callable[[Path], Any]] = {
            "whole": lambda path: write_whole(path, b"new"),
            "text": lambda path: write_text(path, "new"),
            "append": lambda path: append(path, b"new"),
            "refuse": refuse_unusable_file,
        }

    def read(self, given: tuple[str, str, Path]) -> None:
        how, kind, path = given
        before = path.lstat().st_mode if kind not in ("odd", "long", "absent") else None
        try:
            self.ways[how](path)
        finally:
            if before is not None:
                assert stat.S_IFMT(path.lstat().st_mode) == stat.S_IFMT(before), "it is something else now"
        if kind == "odd":
            path.unlink(missing_ok=True)

    def left_behind(self) -> list[str]:
        return [file.name for file in self.folder.iterdir() if file.name.endswith(".tmp")]
