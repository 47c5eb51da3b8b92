from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from PIL import Image

from sightline.errors import SightlineError
from sightline.probes import HardPairRules, ImageRegions, Word, build_hard_pairs, read_probes, write_probes
from tests.unit.controls.test_command import build

BOX = (0.1, 0.1, 0.5, 0.3)


@pytest.fixture
def probes(tmp_path: Path) -> Path:
    """A pair of probes on each of two pages, and the pages."""
    records = []
    for name, word in (("a", "Total"), ("b", "Change")):
        Image.new("RGB", (400, 200), "white").save(tmp_path / f"{name}.png")
        records.append(ImageRegions(name, f"{name}.png", (Word(word, BOX),), 400, 200))
    write_probes(tmp_path / "probes.jsonl", build_hard_pairs(records, HardPairRules(max_area=1.0)).probes)
    return tmp_path / "probes.jsonl"


def test_the_readings_are_written_also_where_no_image_passes(
    probes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightline.controls.screening.Screen.read", lambda self, image, box: "something else")
    with pytest.raises(SightlineError, match="no image allows a text replacement: 2 not readable as intended"):
        build("text-replacement", probes, "--images", tmp_path, "--out", tmp_path / "out")
    with open(tmp_path / "out" / "screening.csv", newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert [row["image_id"] for row in rows] == ["a", "b"]
    assert [row["passed"] for row in rows] == ["False", "False"]
    assert [row["read_sham"] for row in rows] == ["something else"] * 2
    assert not (tmp_path / "out" / "text_replacement.jsonl").exists()


def test_image_free_controls_take_the_options_of_the_annotation_format(probes: Path, tmp_path: Path) -> None:
    rows = [
        {"image_id": name, "image": f"{name}.png", "words": [{"text": word, "box": [0.1, 0.1, 0.4, 0.2]}]}
        for name, word in (("a", "Total"), ("b", "Change"))
    ]
    (tmp_path / "regions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("image-free", probes, "--annotations", tmp_path / "regions.jsonl", "--out", tmp_path, "--seed", 1)
    with pytest.raises(SightlineError, match="not declared"):
        build(*arguments)
    build(*arguments, "--boxes", "xywh", "--units", "normalised")
    assert {probe.view for probe in read_probes(tmp_path / "image_free.jsonl").probes} == {
        "orig", "blank", "image_mismatch_seed1",
    }  # fmt: skip
    build(*arguments, "--boxes", "xywh", "--units", "normalised", "--profile", "artifact")
    assert (tmp_path / "blank.jsonl").is_file()
    assert (tmp_path / "image_mismatch_seed1.jsonl").is_file()
