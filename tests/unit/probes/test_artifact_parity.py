"""Byte parity with files that the paper's artifact wrote."""

from __future__ import annotations

import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from sightline.core.probe import Probe
from sightline.probes import (
    HardPairRules,
    HardPairs,
    ProbeSet,
    audit_negatives,
    build_hard_pairs,
    hash_side,
    read_probes,
    read_regions,
    read_textocr,
    split_probes,
    write_probes,
    write_regions,
)
from sightline.probes.hard_pairs import decoy_candidates
from sightline.probes.lexical_audit import (
    NORMALISERS,
    TABLES,
    changed_char_class,
    edit_distance,
    edit_type,
    nfkc_casefold,
    write_audit,
)
from sightline.probes.regions import Ingest

PREFIX = "mini_textocr"
BOX_VARIANTS = ("gt", "jitter_light", "jitter_heavy", "detected_like", "low_recall", "missing")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def inputs(data: Path) -> Path:
    return data / "golden_e2e" / "inputs"


@pytest.fixture(scope="module")
def digests(inputs: Path) -> dict[str, str]:
    lines = (inputs / "sha256.txt").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


@pytest.fixture(scope="module")
def mini(data: Path) -> Ingest:
    return read_textocr(data / "mini_textocr" / "TextOCR_mini_val.json", pairing="shifted", small_boxes="normalised")


@pytest.fixture(scope="module")
def dev(mini: Ingest) -> HardPairs:
    return build_hard_pairs(mini.records, HardPairRules(version="development-v1", seed=17, limit_images=52))


@pytest.fixture(scope="module")
def conf(mini: Ingest, dev: HardPairs) -> HardPairs:
    rules = HardPairRules(seed=20260720, shuffle_images=True, limit_images=50)
    return build_hard_pairs(mini.records, rules, exclude={probe.image_id for probe in dev.probes})


@pytest.fixture(scope="module")
def golden(data: Path) -> dict[str, Any]:
    folder = data / "protocol" / "golden_json"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "selectors"}


def test_region_conversion_is_byte_identical(mini: Ingest, digests: dict[str, str], tmp_path: Path) -> None:
    write_regions(tmp_path / "regions.jsonl", mini.records, layout="artifact", image_prefix=PREFIX)
    assert sha256(tmp_path / "regions.jsonl") == digests["regions.jsonl"]


def test_pairing_options_agree_where_no_text_is_empty(data: Path, mini: Ingest) -> None:
    assert read_textocr(data / "mini_textocr" / "TextOCR_mini_val.json").records == mini.records


@pytest.mark.parametrize("name", ["dev", "conf"])
def test_probe_files_are_byte_identical(
    name: str, request: pytest.FixtureRequest, digests: dict[str, str], tmp_path: Path
) -> None:
    pairs = request.getfixturevalue(name)
    write_probes(tmp_path / "probes.jsonl", pairs.probes, layout="artifact", image_prefix=PREFIX)
    assert sha256(tmp_path / "probes.jsonl") == digests[f"probes_{name}.jsonl"]


def test_building_from_the_artifacts_region_file_gives_the_same_probes(inputs: Path, dev: HardPairs) -> None:
    regions = read_regions(inputs / "regions.jsonl.gz", image_prefix=PREFIX)
    rebuilt = build_hard_pairs(regions.records, HardPairRules(version="development-v1", limit_images=52))
    assert rebuilt.probes == dev.probes


def test_both_layouts_of_one_set_have_one_digest(inputs: Path, dev: HardPairs) -> None:
    read = read_probes(inputs / "probes_dev.jsonl", image_prefix=PREFIX)
    assert read.probes == dev.probes
    assert read.digest == ProbeSet(dev.probes).digest


def test_hard_builder_cases(golden: dict[str, Any], tmp_path: Path) -> None:
    expected = golden["hard_builder_expected"]
    rows = "".join(json.dumps(row) + "\n" for row in golden["hard_builder_regions"])
    (tmp_path / "regions.jsonl").write_text(rows)
    records = read_regions(tmp_path / "regions.jsonl").records
    first = build_hard_pairs(records, HardPairRules(version="development-v1", limit_images=20))
    second = build_hard_pairs(
        records,
        HardPairRules(seed=20260720, shuffle_images=True, limit_images=20),
        exclude={probe.image_id for probe in first.probes},
    )
    for name, pairs in (("dev", first), ("conf", second)):
        write_probes(tmp_path / name, pairs.probes, layout="artifact")
        assert (tmp_path / name).read_text().splitlines() == expected[name]["lines"]
        assert sha256(tmp_path / name) == expected[name]["sha256"]


def test_decoy_candidates(golden: dict[str, Any]) -> None:
    cases = golden["hard_builder_expected"]["decoy_candidates"]
    assert len(cases) == 12
    for case, expected in cases.items():
        version, _, text = case.partition("|")
        assert decoy_candidates(text, {text.casefold()}, version) == expected, case


@pytest.mark.parametrize("variant", BOX_VARIANTS)
def test_simulated_boxes_survive_a_round_trip(
    variant: str, inputs: Path, digests: dict[str, str], tmp_path: Path
) -> None:
    read = read_probes(inputs / "box_robustness" / f"{variant}.jsonl.gz", image_prefix=PREFIX)
    write_probes(tmp_path / "probes.jsonl", read, layout="artifact", image_prefix=PREFIX)
    assert sha256(tmp_path / "probes.jsonl") == digests[f"box_robustness/{variant}.jsonl"]


@pytest.mark.parametrize("seed", [101, 202, 303])
def test_wrong_image_controls_survive_a_round_trip(
    seed: int, inputs: Path, digests: dict[str, str], tmp_path: Path
) -> None:
    name = f"image_free_conf/image_mismatch_seed{seed}.jsonl"
    read = read_probes(inputs / f"{name}.gz", image_prefix=PREFIX)
    assert any(probe.image_id not in probe.image for probe in read.probes)
    write_probes(tmp_path / "probes.jsonl", read, layout="artifact", image_prefix=PREFIX)
    assert sha256(tmp_path / "probes.jsonl") == digests[name]


def test_occlusion_views_survive_a_round_trip(inputs: Path, tmp_path: Path) -> None:
    source = inputs / "occlusion_probes.jsonl.gz"
    write_probes(tmp_path / "probes.jsonl", read_probes(source), layout="artifact")
    with gzip.open(source, "rt") as stream:
        expected = [json.loads(line) for line in stream]
    assert [json.loads(line) for line in (tmp_path / "probes.jsonl").read_text().splitlines()] == expected


@pytest.mark.parametrize("name", ["dev", "conf"])
def test_lexical_tables_are_byte_identical(
    name: str, request: pytest.FixtureRequest, mini: Ingest, inputs: Path, tmp_path: Path
) -> None:
    audit = audit_negatives(request.getfixturevalue(name).probes, mini.records)
    written = write_audit(tmp_path, audit)
    assert {path.name for path in written} == set(TABLES)
    for path in written:
        assert path.read_bytes() == (inputs / f"lexical_{name}" / path.name).read_bytes(), path.name


def test_normaliser_and_edit_vectors(golden: dict[str, Any]) -> None:
    misc = golden["misc"]
    for text, expected in misc["normalizers"].items():
        assert {name: normalise(text) for name, normalise in NORMALISERS.items()} == expected
        assert list(expected) == list(NORMALISERS)
    for source, target, distance in misc["levenshtein"]:
        assert edit_distance(source, target) == distance
    for source, target, kind, changed in misc["edit_class"]:
        folded = nfkc_casefold(source), nfkc_casefold(target)
        assert (edit_type(*folded), changed_char_class(*folded)) == (kind, changed)


def test_hash_split_vectors_and_published_counts(golden: dict[str, Any], data: Path) -> None:
    assert {group: hash_side(group) for group in golden["misc"]["hash_split"]} == golden["misc"]["hash_split"]
    ids = (data / "protocol" / "paper_evidence" / "sample_ids.txt").read_text().split()
    probes = [Probe(id, "x.jpg", id.partition(":")[0].removeprefix("textocr-"), "?", "yes", "", "", ()) for id in ids]
    by_image = split_probes(probes)
    assert {side: len(part) for side, part in by_image.items()} == {"dev": 464, "test": 536}
    assert {side: len(ProbeSet(part).image_ids) for side, part in by_image.items()} == {"dev": 232, "test": 268}
    by_record = split_probes(probes, group_by="record")
    assert {side: len(part) for side, part in by_record.items()} == {"dev": 506, "test": 494}
