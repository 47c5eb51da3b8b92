"""Probe files of both layouts, their locks, and lists of probes or images."""

from __future__ import annotations

import json
from random import Random

from sightline.core.probe import Probe
from sightline.probes.dialects import Dialect, artifact_row, own_row
from sightline.probes.probe_file import (
    ProbeSet,
    lock_path,
    lock_probes,
    read_image_ids,
    read_probes,
    verify_lock,
    write_probes,
)
from sightline.rows.usable import read_probe_list
from tests.fuzz import mutations
from tests.fuzz.subjects.base import FileSubject, Subject

PROBES = tuple(
    Probe(
        id=f"p{number}",
        image=f"train/{number}.jpg",
        image_id=f"i{number}",
        question='Does the image contain the exact text "TOTAL"?',
        label="yes" if number % 2 else "no",
        target_text="TOTAL",
        source_text="TOTAL",
        regions=((0.1, 0.2, 0.3, 0.4),),
        extra={"note": [1, None, {"a": 2.5}], "original_image": "train/0.jpg"},
    )
    for number in range(4)
)
OPEN = Probe(
    id="open", image="o.jpg", image_id="o", question="What is the total?", label="open", target_text="total",
    source_text="", regions=((0.1, 0.2, 0.3, 0.4),), answers=("12", "twelve"), roles=("answer",), task="docvqa",
    decoy="13", occlude=((0.5, 0.5, 0.6, 0.6),), boxes=((0.1, 0.1, 0.2, 0.2),), kind="sum",
)  # fmt: skip


class ProbeFiles(FileSubject):
    """Sightline's own layout and the artifact's; what is read is written again."""

    name = "probe files"
    share = 16
    file_name = "probes.jsonl"

    def content(self, random: Random) -> bytes:
        if random.random() < 0.3:
            return mutations.lines_bytes([artifact_row(probe, "images/") for probe in PROBES], random)
        header = {"sightline_probes": 1, "construction": {"name": "x"}, "source": {"annotations": "a.json"}}
        asked = (OPEN,) if random.random() < 0.3 else PROBES
        return mutations.lines_bytes([header, *map(own_row, asked)], random)

    def read(self, given: bytes) -> None:
        found = read_probes(self.file)
        layouts: tuple[Dialect, ...] = ("sightline",) if found.probes[0].is_open else ("sightline", "artifact")
        for layout in layouts:
            written = self.folder / f"{layout}.jsonl"
            write_probes(written, found, layout=layout)
            again = read_probes(written)
            assert [probe.occlude for probe in again.probes] == [probe.occlude for probe in found.probes]


class Locks(Subject):
    """A good set beside a lock that is not."""

    name = "locks"
    share = 3

    def prepare(self) -> None:
        self.path = self.folder / "probes.jsonl"
        self.probes: ProbeSet = write_probes(self.path, PROBES)
        self.images = {"train/0.jpg": "sha256:0"}
        lock_probes(self.path, self.probes, images=self.images)
        self.good = json.loads(lock_path(self.path).read_text(encoding="utf-8"))

    def make(self, random: Random) -> bytes:
        data = mutations.json_bytes(self.good, random)
        lock_path(self.path).write_bytes(data)
        return data

    def read(self, given: bytes) -> None:
        verify_lock(self.path, self.probes, images=self.images)


class Lists(FileSubject):
    """``--only`` and ``--exclude``: ids line by line, or the lines of a probe file."""

    name = "lists"
    share = 6

    def content(self, random: Random) -> bytes:
        if random.random() < 0.5:
            return mutations.text_like("p0\np1\nimg0001\n", random).encode(errors="surrogatepass")
        return mutations.lines_bytes([own_row(probe) for probe in PROBES], random)

    def read(self, given: bytes) -> None:
        read_probe_list(self.file)
        read_image_ids(self.file)
