from __future__ import annotations

import gzip
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes import ProbeSet, read_probes, write_probes

PROBE = Probe(
    id="a:pos",
    image="train/a.jpg",
    image_id="a",
    question='Is "Größe" there?',
    label="yes",
    target_text="Größe",
    source_text="Größe",
    regions=((0.1, 0.2, 0.30000000000000004, 1.0),),
    boxes=(),
    kind="small_positive",
    view="evidence_masked",
    occlude=((0.0, 0.0, 0.5, 0.5),),
    extra={"rank": 3, "note": None},
)
PLAIN = Probe("b", "b.jpg", "b", "q?", "no", "", "", ())


def rows_of(*probes: Probe) -> list[dict[str, Any]]:
    from sightline.probes.dialects import own_row

    return [own_row(probe) for probe in probes]


@pytest.fixture
def save(tmp_path: Path) -> Any:
    def write(*rows: Any) -> Path:
        path = tmp_path / "probes.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return path

    return write


@pytest.mark.parametrize("name", ["probes.jsonl", "deep/er/probes.jsonl.gz"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    written = write_probes(tmp_path / name, [PROBE, PLAIN], construction={"seed": 17}, source={"annotations": "x.json"})
    read = read_probes(tmp_path / name)
    assert read == written
    assert read.probes == (PROBE, PLAIN)
    assert (read.construction, read.source) == ({"seed": 17}, {"annotations": "x.json"})


def test_the_header_comes_first(tmp_path: Path) -> None:
    write_probes(tmp_path / "p.jsonl", [PLAIN])
    header = json.loads((tmp_path / "p.jsonl").read_text().splitlines()[0])
    assert list(header) == ["sightline_probes", "digest", "construction", "source"]
    assert header["digest"] == ProbeSet((PLAIN,)).digest
    assert header["digest"].startswith("sha256:")


def test_the_digest_is_of_content_alone(tmp_path: Path) -> None:
    digest = ProbeSet((PROBE, PLAIN)).digest
    assert write_probes(tmp_path / "a.jsonl", [PROBE, PLAIN], source={"x": 1}).digest == digest
    assert write_probes(tmp_path / "b" / "c.gz", [PROBE, PLAIN]).digest == digest
    reordered = replace(PROBE, extra={"note": None, "rank": 3})
    assert ProbeSet((reordered, PLAIN)).digest == digest


@pytest.mark.parametrize(
    "change",
    [
        {"id": "c"},
        {"image": "c.jpg"},
        {"image_id": "c"},
        {"question": "?"},
        {"label": "no"},
        {"target_text": "x"},
        {"source_text": "x"},
        {"regions": ()},
        {"boxes": None},
        {"kind": ""},
        {"view": "orig"},
        {"occlude": ()},
        {"extra": {"rank": 4}},
    ],
)
def test_every_field_enters_the_digest(change: dict[str, Any]) -> None:
    assert ProbeSet((replace(PROBE, **change),)).digest != ProbeSet((PROBE,)).digest


def test_a_changed_file_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_probes(path, [PROBE, PLAIN])
    path.write_text(path.read_text().replace('"label": "no"', '"label": "yes"'))
    with pytest.raises(SightlineError, match=r"p\.jsonl: content does not match its digest") as caught:
        read_probes(path)
    assert "\n" not in str(caught.value)
    assert read_probes(path, check_digest=False).probes[1].label == "yes"


def test_a_header_may_leave_out_the_digest(save: Any) -> None:
    assert read_probes(save({"sightline_probes": 1}, *rows_of(PLAIN))).probes == (PLAIN,)


@pytest.mark.parametrize("value", [float("nan"), [float("-inf")], "\ud800"])
def test_a_header_that_no_other_program_could_read_is_refused(save: Any, value: Any) -> None:
    header = {"sightline_probes": 1, "source": {"annotations": value}}
    with pytest.raises(SightlineError, match=r"probes\.jsonl line 1: the header holds a number or text that JSON"):
        read_probes(save(header, *rows_of(PLAIN)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"id": ""}, "id is '', expected non-empty text"),
        ({"id": None}, "id is missing"),
        ({"label": "maybe"}, "unknown label: label is 'maybe'"),
        ({"regions": [[0.1, 0.1, 1.2, 0.2]]}, r"regions\[0\] .* within the image"),
        ({"regions": [[0.2, 0.1, 0.1, 0.2]]}, r"regions\[0\] .* x1 < x2"),
        ({"regions": [[0.1, 0.1, 0.2]]}, r"regions\[0\] .* not a box"),
        ({"regions": [[0.1, 0.1, float("nan"), 0.2]]}, r"regions\[0\] .* not a box"),
        ({"regions": None}, "regions is missing"),
        ({"occlude": [[0.1, 0.1, 0.2, "x"]]}, r"occlude\[0\]"),
        ({"image": "/etc/passwd"}, "is absolute"),
        ({"image": "a/../../b.jpg"}, "leaves the image root"),
        ({"image": "a\0.jpg"}, "null character"),
        ({"image": 3}, "empty or not text"),
        ({"question": "\ud800"}, "surrogate"),
        ({"reggions": []}, "unknown key 'reggions'"),
        ({"regions": [[0, 0, 10**400, 1]]}, r"regions\[0\] .* not a box"),
        ({"extra": []}, "'extra' must be an object"),
        ({"extra": {"x": float("inf")}}, "'extra' holds a number or text"),
        ({"extra": {"x": "\ud800"}}, "'extra' holds a number or text"),
    ],
)
def test_bad_rows_name_their_line(save: Any, change: dict[str, Any], message: str) -> None:
    (row,) = rows_of(PLAIN)
    with pytest.raises(SightlineError, match=rf"probes\.jsonl line 3: .*{message}"):
        read_probes(save({"sightline_probes": 1}, rows_of(PROBE)[0], row | change))


def test_ids_are_unique_per_view(save: Any) -> None:
    masked = replace(PLAIN, view="masked")
    assert len(read_probes(save({"sightline_probes": 1}, *rows_of(PLAIN, masked)))) == 2
    with pytest.raises(SightlineError, match=r"line 3: probe id 'b' occurs twice \(first on line 2\)"):
        read_probes(save({"sightline_probes": 1}, *rows_of(PLAIN, PLAIN)))


def test_duplicates_are_not_written(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="probe id 'b' occurs twice"):
        write_probes(tmp_path / "p.jsonl", [PLAIN, PLAIN])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no probes"),
        ('{"sightline_probes": 1}\n', "holds no probes"),
        ('{"sightline_probes": 2}\n', "line 1: probe file version 2"),
        ('{"sightline_probes": 1, "diggest": ""}\n', "line 1: unknown key 'diggest'"),
        ('{"sightline_probes": 1, "digest": 5}\n', "line 1: 'digest' in the header must be text"),
        ('{"id": "a"}\n', "line 1: expected a header"),
        ("[]\n", "line 1: expected a JSON object"),
        ('\n\n{"id": \n', "line 3: not JSON"),
    ],
)
def test_other_files_are_refused(tmp_path: Path, lines: str, message: str) -> None:
    (tmp_path / "p.jsonl").write_text(lines)
    with pytest.raises(SightlineError, match=message):
        read_probes(tmp_path / "p.jsonl")


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "p.gz").write_bytes(gzip.compress(b'{"sightline_probes": 1}\n' * 50)[:30])
    with pytest.raises(SightlineError, match="damaged gzip"):
        read_probes(tmp_path / "p.gz")
    (tmp_path / "p.jsonl").write_bytes(b'{"sightline_probes": "\xff"}\n')
    with pytest.raises(SightlineError, match="not UTF-8"):
        read_probes(tmp_path / "p.jsonl")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "p.jsonl"
    write_probes(path, [PLAIN])
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(SightlineError, match=r"cannot write .*: No space left"):
        write_probes(path, [PROBE, PLAIN])
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["p.jsonl"]


def test_a_prefix_is_stripped_only_when_asked(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_probes(path, [replace(PROBE, image="root/train/a.jpg")])
    assert read_probes(path).probes[0].image == "root/train/a.jpg"
    assert read_probes(path, image_prefix="root").probes[0].image == "train/a.jpg"
    with pytest.raises(SightlineError, match="does not start with the prefix 'other'"):
        read_probes(path, image_prefix="other")
    write_probes(path, [PLAIN], layout="artifact", image_prefix="/home/me/data")
    with pytest.raises(SightlineError, match=r"line 1: image name '/home/me/data/b\.jpg' is absolute"):
        read_probes(path)
    assert read_probes(path, image_prefix="/home/me/data").probes[0].image == "b.jpg"


def test_our_layout_takes_no_prefix(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="belongs to the artifact layout"):
        write_probes(tmp_path / "p.jsonl", [PLAIN], image_prefix="root")
