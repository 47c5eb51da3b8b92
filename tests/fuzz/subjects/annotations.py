"""Annotations of every registered format, what is built from them, and probe files with their locks and lists."""

import json
from pathlib import Path
from random import Random

from sightline import Probe, read_probes
from sightline.analysis.regions import agreement_table
from sightline.controls.text_replacement import reviewed_images
from sightline.probes import HardPairRules, ProbeSet, build_hard_pairs, lock_probes, verify_lock, write_probes
from sightline.probes.annotations import detect_format, read_annotations
from sightline.probes.dialects import Dialect, artifact_row, own_row
from sightline.probes.formats import FORMATS
from sightline.probes.formats.gsr import read_instances
from sightline.probes.probe_file import lock_path, read_image_ids
from sightline.rows.source import read_probe_list
from tests.fuzz import mutations
from tests.fuzz.subjects.base import GOOD, FileSubject, Subject
from tests.unit.probes.test_pages import SECTIONS, write_examples


class Annotations(Subject, name="annotations", share=24):
    """Files of all formats, told by their content or read as a format by name; probes are built of what is read."""

    def prepare(self) -> None:
        self.good: list[tuple[str, bytes, str]] = []
        for title in SECTIONS:
            for path in write_examples(self.folder / "examples", title):
                self.good.append((path.name, path.read_bytes(), detect_format(path)))
        self.good.append(("textocr.json", json.dumps(GOOD["textocr"]).encode(), "textocr"))
        lines = "".join(json.dumps(row) + "\n" for row in GOOD["regions"])
        self.good.append(("regions.jsonl", lines.encode(), "regions"))
        assert {kind for _, _, kind in self.good} == set(FORMATS), "every format has an example"
        self.built = self.folder / "probes.jsonl"

    def make(self, random: Random) -> tuple[Path, str | None, bytes]:
        name, data, kind = random.choice(self.good)
        path = self.folder / name
        path.write_bytes(_spoiled(data, random))
        return path, random.choice((None, kind, kind, random.choice(list(FORMATS)))), path.read_bytes()

    def read(self, given: tuple[Path, str | None, bytes]) -> None:
        self.built.unlink(missing_ok=True)
        path, kind, _ = given
        ingest = read_annotations(path, {}, file_format=kind, images=None)
        probes = ingest.probes or build_hard_pairs(ingest.records, HardPairRules(min_area=0, max_area=1)).probes
        write_probes(self.built, probes, source=ingest.source)

    def left_behind(self) -> list[str]:
        return [self.built.name] if self.built.exists() else []


def _spoiled(data: bytes, random: Random) -> bytes:
    """JSON by its values or its bytes, everything else by its text or its bytes."""
    if random.random() < 0.3:
        return mutations.bytes_like(data, random)
    try:
        return mutations.json_bytes(json.loads(data), random)
    except ValueError:
        pass
    try:
        rows = [json.loads(line) for line in data.decode().split("\n") if line]
        return mutations.lines_bytes(rows, random)
    except ValueError:
        return mutations.text_like(data.decode(errors="replace"), random).encode(errors="surrogatepass")


class Instances(FileSubject, name="coco instances", share=3):
    """COCO's object boxes, which one format reads beside its own file."""

    good = GOOD["instances"]

    def read(self, given: bytes) -> None:
        images, _ = read_instances(self.file, ["139"])
        for image in images.values():
            image.largest("tv")


class Decisions(FileSubject, name="decisions", share=6):
    """Tables that people fill in: reviewed edits, and two annotators' answers."""

    def content(self, random: Random) -> bytes:
        if random.random() < 0.5:
            table = "image_id,source,target,passed,decision\na,TOTAL,T0TAL,True,valid_semantic_edit\nb,x,y,False,no\n"
            return mutations.text_like(table, random).encode(errors="surrogatepass")
        rows = [{"id": str(i), "answer": "yes", "regions": [[0.1, 0.1, 0.2, 0.3]]} for i in range(3)]
        return mutations.lines_bytes(rows, random)

    def make(self, random: Random) -> bytes:
        data = super().make(random)
        self.table = self.folder / "other.csv"
        self.table.write_bytes(data)
        rows = [{"id": str(i), "answer": "no", "regions": [[0, 0, 1, 1]]} for i in range(3)]
        (self.folder / "good.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        return data

    def read(self, given: bytes) -> None:
        if given.startswith((b"image_id", b"source")):
            reviewed_images(self.table)
            return
        agreement_table(self.file, self.folder / "good.jsonl", draws=100)


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


class ProbeFiles(FileSubject, name="probe files", share=16, file_name="probes.jsonl"):
    """Sightline's own layout and the artifact's; what is read is written again."""

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


class Locks(Subject, name="locks", share=3):
    """A good set beside a lock that is not."""

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


class Lists(FileSubject, name="lists", share=6):
    """``--only`` and ``--exclude``: ids line by line, or the lines of a probe file."""

    def content(self, random: Random) -> bytes:
        if random.random() < 0.5:
            return mutations.text_like("p0\np1\nimg0001\n", random).encode(errors="surrogatepass")
        return mutations.lines_bytes([own_row(probe) for probe in PROBES], random)

    def read(self, given: bytes) -> None:
        read_probe_list(self.file)
        read_image_ids(self.file)
