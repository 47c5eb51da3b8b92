from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.controls.image_free import (
    SEEDS,
    allowed_targets,
    blank_probes,
    derangement,
    mismatch_mapping,
    mismatched_probes,
    pairs_by_image,
)
from sightline.core.probe import Label, Probe
from sightline.errors import SightlineError
from sightline.probes import ImageRegions, Word, load_regions, read_probes, write_probes

PREFIX = "mini_textocr"


def pair(image_id: str, word: str, decoy: str) -> tuple[Probe, Probe]:
    def probe(label: Label, text: str) -> Probe:
        return Probe(
            id=f"{image_id}:{label}", image=f"{image_id}.jpg", image_id=image_id, question=f"{text}?", label=label,
            target_text=text, source_text=word, regions=((0.1, 0.1, 0.2, 0.2),),
        )  # fmt: skip

    return probe("yes", word), probe("no", decoy)


def regions(words: dict[str, list[str]]) -> list[ImageRegions]:
    box = (0.1, 0.1, 0.2, 0.2)
    return [ImageRegions(i, f"{i}.jpg", tuple(Word(text, box) for text in texts)) for i, texts in words.items()]


def test_the_golden_derangements(data: Path) -> None:
    case = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())["derangement"]
    pairs = {f"img{i}": pair(f"img{i}", word, f"{word[:-1]}X") for i, word in enumerate(case["words"])}
    allowed = allowed_targets(pairs, case["image_tokens"])
    for seed, expected in case["maps"].items():
        assert derangement(allowed, int(seed)) == expected


@pytest.mark.parametrize(("name", "file"), [("conf", "probes_conf.jsonl"), ("dev", "probes_dev.jsonl")])
def test_the_reference_mappings_and_files(data: Path, tmp_path: Path, name: str, file: str) -> None:
    inputs = data / "golden_e2e" / "inputs"
    records = load_regions(inputs / "regions.jsonl.gz").records
    probes = read_probes(inputs / file, image_prefix=PREFIX).probes
    with open(inputs / f"image_free_{name}" / "image_mismatch_mapping.csv", newline="") as lines:
        expected: dict[int, dict[str, str]] = {}
        for row in csv.DictReader(lines):
            expected.setdefault(int(row["seed"]), {})[row["source_image_id"]] = row["control_image_id"]
    for seed in SEEDS:
        mapping = mismatch_mapping(probes, records, seed)
        assert mapping == expected[seed]
        if name == "conf":
            control = mismatched_probes(probes, mapping, seed, as_view=False)
            write_probes(tmp_path / "control.jsonl", control, layout="artifact", image_prefix=PREFIX)
            recorded = (inputs / "image_free_conf" / f"image_mismatch_seed{seed}.jsonl.gz").read_bytes()
            assert (tmp_path / "control.jsonl").read_bytes() == gzip.decompress(recorded)


def test_blank_rows_have_the_reference_content(data: Path) -> None:
    inputs = data / "golden_e2e" / "inputs"
    probes = read_probes(inputs / "probes_conf.jsonl", image_prefix=PREFIX).probes
    recorded = read_probes(inputs / "image_free_conf" / "blank.jsonl.gz", image_prefix=None).probes
    stripped = [_without_folder(probe) for probe in blank_probes(probes, as_view=False)]
    assert stripped == [_without_folder(probe) for probe in recorded]


def _without_folder(probe: Probe) -> dict[str, Any]:
    image = str(probe.extra["original_image"]).removeprefix(f"{PREFIX}/")
    return {**vars(probe), "image": image, "extra": {**probe.extra, "original_image": image}}


@given(st.integers(2, 12), st.integers(0, 5))
def test_nobody_keeps_an_image_or_gets_one_that_shows_the_word(count: int, seed: int) -> None:
    words = {f"i{i}": [f"word{i}", "common"] for i in range(count)}
    probes = [probe for i in range(count) for probe in pair(f"i{i}", f"word{i}", f"w0rd{i}")]
    mapping = mismatch_mapping(probes, regions(words), seed)
    assert sorted(mapping) == sorted(mapping.values()) == sorted(words)
    assert all(source != target for source, target in mapping.items())
    control = mismatched_probes(probes, mapping, seed)
    assert [a.image for a in control[::2]] == [b.image for b in control[1::2]]
    assert {probe.image_id for probe in control} == set(words)


def test_an_impossible_derangement_names_the_pair_that_collides() -> None:
    probes = [*pair("a", "open", "0pen"), *pair("b", "shut", "5hut")]
    with pytest.raises(SightlineError, match=r"'a' asks for '(OPEN|open)', which 'b' shows"):
        mismatch_mapping(probes, regions({"a": ["open"], "b": ["shut", "OPEN"]}), 101)
    with pytest.raises(SightlineError, match="'b' can stand in for no image; it has no annotated words"):
        mismatch_mapping([*probes, *pair("c", "exit", "ex1t")], regions({"a": ["open"], "b": [], "c": ["exit"]}), 101)


def test_images_that_compete_for_one_stand_in_are_refused() -> None:
    probes = [probe for i in "abcd" for probe in pair(i, f"word{i}", f"w0rd{i}")]
    words = {"a": ["worda", "wordb"], "b": ["wordb", "worda"], "c": ["wordc", "worda", "wordb"], "d": ["wordd"]}
    with pytest.raises(SightlineError, match=r"may only be shown as d, which others need too; .* shows"):
        mismatch_mapping(probes, regions(words), 101)


def test_a_missing_pair_region_record_or_second_image_is_refused() -> None:
    yes, no = pair("a", "open", "0pen")
    with pytest.raises(SightlineError, match="exactly one yes and one no per image"):
        pairs_by_image([yes])
    with pytest.raises(SightlineError, match="no region record"):
        mismatch_mapping([yes, no], [], 101)
    with pytest.raises(SightlineError, match="at least two images"):
        mismatch_mapping([yes, no], regions({"a": ["open"]}), 101)
