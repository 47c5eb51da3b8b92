"""Probe sets on disk: rows of both dialects, digests, locks and splits."""

import csv
import gzip
import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely

from sightline.core.probe import Box, Probe
from sightline.probes import ProbeSet, lock_probes, read_probes, verify_lock, write_probes
from sightline.probes.dialects import artifact_row, own_row, probe_from_artifact
from sightline.probes.probe_file import canonical, even_side, hash_side, lock_path, read_lock, split_probes
from tests.refusals import Refused
from tests.unit.probes.conftest import Save

PROBE = Probe(
    "a:pos", "train/a.jpg", "a", 'Is "Größe" there?', "yes", "Größe", "Größe", ((0.1, 0.2, 0.30000000000000004, 1.0),),
    boxes=(), kind="small_positive", view="evidence_masked", occlude=((0.0, 0.0, 0.5, 0.5),),
    extra={"rank": 3, "note": None},
)  # fmt: skip
PLAIN = Probe("b", "b.jpg", "b", "q?", "no", "", "", ())
OPEN = Probe(
    "docvqa:1", "a.png", "a", "Who sold the mill?", "open", "mill", "", ((0.1, 0.1, 0.2, 0.2), (0.3, 0.1, 0.4, 0.2)),
    answers=("Ada", "Ada", "ada l."), roles=("answer_value", "field_label"), task="docvqa", decoy="Bob",
)  # fmt: skip
OPEN_ROW = {
    "id": "docvqa:1", "image": "a.png", "image_id": "a", "question": "Who sold the mill?", "label": "open",
    "target_text": "mill", "source_text": "", "regions": [[0.1, 0.1, 0.2, 0.2], [0.3, 0.1, 0.4, 0.2]],
    "answers": ["Ada", "Ada", "ada l."], "roles": ["answer_value", "field_label"], "task": "docvqa", "decoy": "Bob",
}  # fmt: skip
BOX: Box = (0.1, 0.1, 0.2, 0.2)
PROBES = tuple(Probe(f"p{i}", f"{i}.jpg", f"i{i}", f"q{i}?", "yes", "t", "t", (BOX,)) for i in range(6))
HEADER = {"sightline_probes": 1}


def test_probes_are_read_as_written_under_a_header_with_the_digest_of_their_content_alone(
    tmp_path: Path, save: Save, refused: Refused
) -> None:
    probes = (PROBE, PLAIN, OPEN)
    digest = ProbeSet(probes).digest
    lines = "".join(f"{canonical(own_row(probe))}\n" for probe in probes)
    assert digest == f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
    for name in ("probes.jsonl", "deep/er/probes.jsonl.gz"):
        written = write_probes(tmp_path / name, probes, construction={"seed": 17}, source={"annotations": "x.json"})
        read = read_probes(tmp_path / name)
        assert read == written
        assert (read.probes, read.digest) == (probes, digest)
        assert (read.construction, read.source) == ({"seed": 17}, {"annotations": "x.json"})
    assert write_probes(tmp_path / "a.jsonl", probes, source={"x": 1}).digest == digest
    assert ProbeSet((replace(PROBE, extra={"note": None, "rank": 3}), PLAIN, OPEN)).digest == digest
    header, *_, last = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert list(header) == ["sightline_probes", "digest", "construction", "source"]
    assert header["digest"] == digest
    assert last == OPEN_ROW
    assert read_probes(save(HEADER, own_row(PLAIN))).probes == (PLAIN,), "the digest may be left out"
    path = tmp_path / "a.jsonl"
    path.write_text(path.read_text().replace('"label": "no"', '"label": "yes"'))
    refused("a.jsonl: content does not match its digest", read_probes, path)
    assert read_probes(path, check_digest=False).probes[1].label == "yes"


def test_every_field_enters_the_digest() -> None:
    changes: dict[str, Any] = {
        "id": "c", "image": "c.jpg", "image_id": "c", "question": "?", "label": "no",
        "target_text": "x", "source_text": "x",
        "regions": (), "boxes": None, "kind": "", "view": "orig", "occlude": (), "extra": {"rank": 4},
    }  # fmt: skip
    for name, value in changes.items():
        assert ProbeSet((replace(PROBE, **{name: value}),)).digest != ProbeSet((PROBE,)).digest, name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "holds no probes"),
        (b'{"sightline_probes": 1}\n', "holds no probes"),
        (b'{"sightline_probes": 2}\n', "line 1: probe file version 2"),
        (b'{"sightline_probes": 1, "diggest": ""}\n', "line 1: unknown key 'diggest'"),
        (b'{"sightline_probes": 1, "digest": 5}\n', "line 1: 'digest' in the header must be text"),
        (b'{"id": "a"}\n', "line 1: expected a header"),
        (b"[]\n", "line 1: expected a JSON object"),
        (b'\n\n{"id": \n', "line 3: not JSON"),
        (b'{"sightline_probes": "\xff"}\n', "not UTF-8"),
        (gzip.compress(b'{"sightline_probes": 1}\n' * 50, mtime=0)[:30], "damaged gzip"),
        *(
            (
                b'{"sightline_probes": 1, "source": {"x": %s}}\n' % value,
                "line 1: the header holds a number or text that",
            )
            for value in (b"NaN", b"[-Infinity]", b'"\\ud800"')
        ),
    ],
)
def test_other_files_are_refused(tmp_path: Path, content: bytes, message: str, refused: Refused) -> None:
    (tmp_path / "p.jsonl").write_bytes(content)
    refused(message, read_probes, tmp_path / "p.jsonl")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "id is '', expected non-empty text"),
        ({"id": None}, "id is missing"),
        ({"label": "maybe"}, "unknown label: label is 'maybe'"),
        ({"regions": [[0.1, 0.1, 1.2, 0.2]]}, "regions[0] [0.1, 0.1, 1.2, 0.2]"),
        ({"regions": [[0.2, 0.1, 0.1, 0.2]]}, "regions[0] [0.2, 0.1, 0.1, 0.2]"),
        ({"regions": [[0.1, 0.1, 0.2]]}, "regions[0] [0.1, 0.1, 0.2]"),
        ({"regions": [[0.1, 0.1, float("nan"), 0.2]]}, "regions[0] [0.1, 0.1, nan, 0.2]"),
        ({"regions": [[0, 0, 10**400, 1]]}, "regions[0] [0, 0, 1000"),
        ({"regions": None}, "regions is missing"),
        ({"occlude": [[0.1, 0.1, 0.2, "x"]]}, "occlude[0]"),
        ({"image": "/etc/passwd"}, "is absolute"),
        ({"image": "a/../../b.jpg"}, "leaves the image root"),
        ({"image": "a\0.jpg"}, "null character"),
        ({"image": 3}, "empty or not text"),
        ({"question": "\ud800"}, "surrogate"),
        ({"reggions": []}, "unknown key 'reggions'"),
        ({"extra": []}, "'extra' must be an object"),
        ({"extra": {"x": float("inf")}}, "'extra' holds a number or text"),
        ({"extra": {"x": "\ud800"}}, "'extra' holds a number or text"),
        ({**OPEN_ROW, "answers": []}, "label 'open' with 0 answers"),
        ({**OPEN_ROW, "label": "yes"}, "label 'yes' with 3 answers: open questions, and only they, have some"),
        ({**OPEN_ROW, "roles": ["answer_value"]}, "regions and roles differ in number (2 and 1)"),
        ({**OPEN_ROW, "target_text": "Ada"}, "'Ada' is not in the question; selectors must not be told the answer"),
        ({**OPEN_ROW, "answers": "Ada"}, "answers is 'Ada', expected a list of texts"),
        ({**OPEN_ROW, "answers": ["Ada", " "]}, "answers[1] is ' ', expected non-empty text"),
    ],
)
def test_bad_rows_name_their_line(save: Save, change: dict[str, Any], message: str, refused: Refused) -> None:
    refused(message, read_probes, save(HEADER, own_row(PROBE), own_row(PLAIN) | change))


def test_ids_are_unique_per_view(save: Save, tmp_path: Path, refused: Refused) -> None:
    assert len(read_probes(save(HEADER, own_row(PLAIN), own_row(replace(PLAIN, view="masked"))))) == 2
    path = save(HEADER, own_row(PLAIN), own_row(PLAIN))
    refused("line 3: probe id 'b' occurs twice", read_probes, path)
    refused("probe id 'b' occurs twice", write_probes, tmp_path / "p.jsonl", [PLAIN, PLAIN])
    assert not (tmp_path / "p.jsonl").exists()


def test_layouts_have_limits(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "p.jsonl"
    refused("belongs to the artifact layout", write_probes, path, [PLAIN], image_prefix="root")
    refused("'docvqa:1' is an open", write_probes, path, [OPEN], layout="artifact")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused) -> None:
    path = tmp_path / "p.jsonl"
    write_probes(path, [PLAIN])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    refused(": No space left", write_probes, path, [PROBE, PLAIN])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.jsonl"]


def test_a_prefix_is_stripped_only_when_asked(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "p.jsonl"
    write_probes(path, [replace(PROBE, image="root/train/a.jpg")])
    assert read_probes(path).probes[0].image == "root/train/a.jpg"
    assert read_probes(path, image_prefix="root").probes[0].image == "train/a.jpg"
    refused("does not start with the prefix 'other'", read_probes, path, image_prefix="other")
    write_probes(path, [PLAIN], layout="artifact", image_prefix="/home/me/data")
    refused("line 1: image name '/home/me/data/b.jpg' is absolute", read_probes, path)
    assert read_probes(path, image_prefix="/home/me/data").probes[0].image == "b.jpg"


# What the fields of an artifact row become.

ROW: dict[str, Any] = {
    "id": "a:pos", "image": "root/train/a.jpg", "image_id": "a", "question": "q?", "target_answer": "yes",
    "target_text": "t", "source_text": "t", "binary_polarity": "positive", "evidence_regions": [list(BOX)],
}  # fmt: skip


def coverage(boxes: tuple[Box, ...], kept: list[int], side: int = 24) -> float:
    """Share of the union of ``boxes`` that lies in kept cells of a square grid over the whole image."""
    if not boxes:
        return 0.0
    rows, columns = np.divmod(np.asarray(kept), side)
    cells = shapely.box(columns / side, rows / side, (columns + 1) / side, (rows + 1) / side)
    wanted = shapely.union_all([shapely.box(*box) for box in boxes])
    return float(shapely.area(shapely.intersection(cells, wanted)).sum() / wanted.area)


def test_regions_are_the_true_boxes_and_boxes_the_shown_ones(data: Path) -> None:
    """Recorded run coverage was measured on shown boxes, the report's ``true_ECR`` on true ones: both can be had."""
    folder = data / "golden_e2e"
    with gzip.open(folder / "runs" / "llava.jsonl.gz", "rt") as stream:
        records = [json.loads(line) for line in stream if '"run": "box_robustness/' in line]
    with open(folder / "analysis" / "box_robustness" / "box_robustness_summary.csv") as stream:
        summary = {row["variant"]: row for row in csv.DictReader(stream) if row["model"] == "LLaVA"}
    for variant in ("jitter_heavy", "detected_like", "missing"):
        read = read_probes(folder / "inputs" / "box_robustness" / f"{variant}.jsonl.gz")
        probes = {probe.id: probe for probe in read.probes}
        runs = [record for record in records if record["run"] == f"box_robustness/llava_{variant}"]
        assert len(runs) == 62
        true = []
        for run in runs:
            probe = probes[run["sample_id"]]
            assert probe.boxes is not None
            assert coverage(probe.visible_boxes, run["kept"]) == pytest.approx(run["ecr"], abs=1e-12)
            true.append(coverage(probe.regions, run["kept"]))
        assert sum(true) / len(true) == pytest.approx(float(summary[variant]["true_ECR"]), abs=1e-12)


def test_rows_of_the_artifact_say_what_is_shown_and_grayed(refused: Refused) -> None:
    probe = probe_from_artifact(ROW)
    assert (probe.regions, probe.boxes, probe.visible_boxes) == ((BOX,), None, (BOX,))
    probe = probe_from_artifact(ROW | {"evidence_regions": [], "oracle_evidence_regions": [list(BOX)]})
    assert (probe.regions, probe.visible_boxes) == ((BOX,), ()), "missing boxes stay missing"
    elsewhere = ((0.5, 0.5, 0.6, 0.6),)
    for view, occluded in (("original", ()), ("evidence_masked", (BOX,)), ("mask_regions", elsewhere)):
        probe = probe_from_artifact(ROW | {"probe": "name", "rice_view": view, "mask_regions": [list(*elsewhere)]})
        assert (probe.view, probe.occlude) == ("name", occluded)
    refused("'flip'", probe_from_artifact, ROW | {"rice_view": "flip"})
    row = ROW | {"control_type": "blank", "image": "/elsewhere/blank/a.jpg", "original_image": "root/train/a.jpg"}
    probe = probe_from_artifact(row, image_prefix="root")
    assert (probe.image, probe.occlude) == ("train/a.jpg", ((0.0, 0.0, 1.0, 1.0),))
    row = artifact_row(replace(PROBES[0], occlude=(*elsewhere, BOX)))
    again = probe_from_artifact(row)
    assert again.occlude == (*elsewhere, BOX)
    assert artifact_row(again) == row
    refused("contradicts binary_polarity", probe_from_artifact, ROW | {"target_answer": "no"})
    refused("image name 5", artifact_row, replace(PROBES[0], extra={"original_image": 5}))


def test_unknown_fields_of_the_artifact_are_kept() -> None:
    probe = probe_from_artifact(ROW | {"novel": [1, {"a": None}]})
    assert probe.extra == {"novel": [1, {"a": None}]}
    assert artifact_row(probe)["novel"] == [1, {"a": None}]


# Locks.


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "probes.jsonl"
    assert lock_probes(path, ProbeSet(PROBES), images={"0.jpg": "sha256:aa"}) == tmp_path / "probes.jsonl.lock.json"
    return path


NO_LONGER = replace(PROBES[1], label="no", regions=((0.1, 0.1, 0.3, 0.2),))


@pytest.mark.parametrize(
    ("probes", "images", "says"),
    [
        ((PROBES[0], NO_LONGER, *PROBES[3:], replace(PROBES[0], id="new")), {},
         "1 changed (p1: label, regions); 1 added (new); 1 removed (p2)"),
        ([replace(probe, question="?") for probe in PROBES], {},
         "6 changed (p0: question; p1: question; p2: question; and 3 more)"),
        ((replace(PROBES[0], boxes=()), *PROBES[1:]), {}, "1 changed (p0: boxes)"),
        (PROBES[::-1], {}, "the same probes in another order"),
        (PROBES, {"0.jpg": "sha256:bb"}, "1 image with other bytes (0.jpg)"),
    ],
)  # fmt: skip
def test_a_changed_set_is_refused_with_what_changed(
    path: Path, probes: Any, images: Any, says: str, refused: Refused
) -> None:
    same = {"0.jpg": "sha256:aa", "1.jpg": "sha256:cc"}
    assert verify_lock(path, ProbeSet(PROBES), images=same).digest == ProbeSet(PROBES).digest
    refused(says, verify_lock, path, ProbeSet(tuple(probes)), images=images)


def test_a_lock_notices_every_field_of_an_open_question_and_does_not_give_way(
    path: Path, save: Save, refused: Refused
) -> None:
    refused("locks other content", lock_probes, path, ProbeSet(PROBES[:3]))
    lock_probes(path, ProbeSet(PROBES))
    lock_probes(path, ProbeSet(PROBES[:3]), replace=True)
    assert len(verify_lock(path, ProbeSet(PROBES[:3])).fields) == 3
    lock_probes(path, ProbeSet((OPEN,)), replace=True)
    for key, value in {
        "answers": ["Ada"], "roles": ["answer_value", "context"], "task": "textvqa", "decoy": "Carl",
    }.items():  # fmt: skip
        refused(f"1 changed (docvqa:1: {key})", verify_lock, path, read_probes(save(HEADER, {**OPEN_ROW, key: value})))


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", "[" * 3000, '{"sightline_lock": 1, "digest": "x", "probes": {"a": NaN}}',
                '{"sightline_lock": 1}'],
)  # fmt: skip
def test_a_damaged_lock_is_one_line(path: Path, content: str, refused: Refused) -> None:
    lock_path(path).write_text(content)
    refused("not a probe lock", read_lock, lock_path(path))
    refused("not a probe lock", verify_lock, path, ProbeSet(PROBES))


def test_the_papers_halves_are_those_of_md5_by_probe_or_image() -> None:
    for name in ("docvqa_val_lite:49153", "textvqa_val_lite:34602", "ä"):
        digits = hashlib.md5(name.encode("utf-8")).hexdigest()[:8]
        assert even_side(name) == ("dev" if digits[-1] in "02468ace" else "test")
    assert 900 < sum(even_side(f"textvqa:{number}") == "dev" for number in range(2000)) < 1100
    probes = [replace(OPEN, id=f"docvqa:{number}", image_id=f"i{number % 7}") for number in range(60)]
    by_probe = split_probes(probes, group_by="probe", rule="md5")
    assert all(even_side(probe.id) == side for side, part in by_probe.items() for probe in part)
    by_image = split_probes(probes, rule="md5")
    assert not {p.image_id for p in by_image["dev"]} & {p.image_id for p in by_image["test"]}
    assert sum(map(len, by_probe.values())) == sum(map(len, by_image.values())) == 60


def test_the_papers_tenths_are_those_of_sha1(refused: Refused) -> None:
    for name in (f"i{number}" for number in range(40)):
        bucket = int(hashlib.sha1(name.encode()).hexdigest()[:8], 16) % 10
        assert [hash_side(name, tenths) for tenths in (bucket, bucket + 1)] == ["test", "dev"]
    probes = [replace(OPEN, id=f"docvqa:{number}", image_id=f"i{number}") for number in range(40)]
    sides = split_probes(probes, dev_buckets=3)
    assert all(hash_side(probe.image_id, 3) == side for side, part in sides.items() for probe in part)
    refused("open questions (docvqa:1) have no records; group", split_probes, [OPEN], group_by="record")
