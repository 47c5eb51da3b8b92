"""Control sets: wrong and gray images, boxes, occlusion, text replacement, through the command too."""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from sightline.boxes.sources import VARIANTS
from sightline.controls import image_free
from sightline.core.probe import Probe
from sightline.probes import (
    HardPairRules,
    ImageRegions,
    Word,
    build_hard_pairs,
    load_regions,
    read_probes,
    write_probes,
)
from sightline.probes.fetched_images import resolve_image
from tests.command_line import sightline
from tests.refusals import Refused
from tests.unit.controls.test_text_replacement import pair

BOX = (0.1, 0.1, 0.5, 0.3)
PREFIX = ["--image-prefix", "mini_textocr"]


@pytest.fixture
def inputs(data: Path) -> Path:
    return data / "golden_e2e" / "inputs"


def build(*arguments: object) -> str:
    return sightline("controls", "build", *arguments).output


def regions(words: dict[str, list[str]]) -> list[ImageRegions]:
    return [ImageRegions(i, f"{i}.jpg", tuple(Word(text, BOX) for text in texts)) for i, texts in words.items()]


def read_mapping(path: Path) -> dict[int, dict[str, str]]:
    """Seed -> image -> the wrong image that is shown."""
    found: dict[int, dict[str, str]] = {}
    with open(path, newline="") as lines:
        for row in csv.DictReader(lines):
            found.setdefault(int(row["seed"]), {})[row["source_image_id"]] = row["control_image_id"]
    return found


def without_folder(probe: Probe) -> dict[str, Any]:
    image = str(probe.extra["original_image"]).removeprefix("mini_textocr/")
    return {**vars(probe), "image": image, "extra": {**probe.extra, "original_image": image}}


def test_blank_rows_derangements_and_mappings_are_those_of_the_reference(data: Path, inputs: Path) -> None:
    case = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())["derangement"]
    pairs = {f"img{i}": pair(word, f"{word[:-1]}X", f"img{i}") for i, word in enumerate(case["words"])}
    allowed = image_free.allowed_targets(pairs, case["image_tokens"])
    for seed, expected in case["maps"].items():
        assert image_free.derangement(allowed, int(seed)) == expected
    records = load_regions(inputs / "regions.jsonl.gz").records
    for name in ("dev", "conf"):
        probes = read_probes(inputs / f"probes_{name}.jsonl", image_prefix="mini_textocr").probes
        found = {seed: image_free.mismatch_mapping(probes, records, seed) for seed in image_free.SEEDS}
        assert found == read_mapping(inputs / f"image_free_{name}" / "image_mismatch_mapping.csv"), name
    recorded = read_probes(inputs / "image_free_conf" / "blank.jsonl.gz", image_prefix=None).probes
    blank = image_free.blank_probes(probes, as_view=False)  # of the last, conf
    assert list(map(without_folder, blank)) == list(map(without_folder, recorded))


@given(st.integers(2, 12), st.integers(0, 5))
def test_nobody_keeps_an_image_or_gets_one_that_shows_the_word(count: int, seed: int) -> None:
    words = {f"i{i}": [f"word{i}", "common"] for i in range(count)}
    probes = [probe for i in range(count) for probe in pair(f"word{i}", f"w0rd{i}", f"i{i}")]
    mapping = image_free.mismatch_mapping(probes, regions(words), seed)
    assert sorted(mapping) == sorted(mapping.values()) == sorted(words)
    assert all(source != target for source, target in mapping.items())
    control = image_free.mismatched_probes(probes, mapping, seed)
    assert [a.image for a in control[::2]] == [b.image for b in control[1::2]]
    assert {probe.image_id for probe in control} == set(words)


PAIRS = [pair("open", "0pen", "a"), pair("shut", "5hut", "b"), pair("exit", "ex1t", "c")]


def test_a_decoy_that_another_image_shows_is_plausible() -> None:
    words = {"a": ["open"], "b": ["shut", "0PEN"], "c": ["exit"]}
    found, _ = image_free.image_free_probes([probe for each in PAIRS for probe in each], regions(words), [1])
    assert {probe.image_id for probe in found if probe.extra["lexically_plausible"]} == {"a"}


COMPETING = {"a": ["worda", "wordb"], "b": ["wordb", "worda"], "c": ["wordc", "worda", "wordb"], "d": ["wordd"]}


@pytest.mark.parametrize(
    ("pairs", "words", "says"),
    [
        (PAIRS[:2], {"a": ["open"], "b": ["shut", "OPEN"]}, "', which 'b' shows"),
        (PAIRS, {"a": ["open"], "b": [], "c": ["exit"]}, "'b' can stand in for no image; it has no annotated words"),
        ([pair(f"word{i}", f"w0rd{i}", i) for i in "abcd"], COMPETING, "may only be shown as d, which others"),
        ([PAIRS[0][:1]], {}, "exactly one yes and one no per image"),
        (PAIRS[:1], {}, "no region record"),
        (PAIRS[:1], {"a": ["open"]}, "at least two images"),
    ],
)
def test_an_impossible_derangement_is_refused(
    pairs: Any, words: dict[str, list[str]], says: str, refused: Refused
) -> None:
    refused(says, image_free.mismatch_mapping, [probe for each in pairs for probe in each], regions(words), 101)


def test_the_command_writes_views_in_one_file_and_the_references_files_byte_for_byte(
    data: Path, inputs: Path, tmp_path: Path
) -> None:
    image_free_set = ["image-free", inputs / "probes_conf.jsonl", "--annotations", inputs / "regions.jsonl.gz"]
    build(*image_free_set, "--out", tmp_path, *PREFIX)
    probes = read_probes(tmp_path / "image_free.jsonl").probes
    views = {"orig", "blank", *(f"image_mismatch_seed{seed}" for seed in (101, 202, 303))}
    assert {probe.view for probe in probes} == views
    assert len(probes) == 5 * 100
    for probe in probes:
        resolve_image(data / "mini_textocr", probe.image)
    expected = inputs / "image_free_conf" / "image_mismatch_mapping.csv"
    assert read_mapping(tmp_path / "image_mismatch_mapping.csv") == read_mapping(expected)
    build(*image_free_set, "--out", tmp_path, *PREFIX, "--layout", "artifact")
    build("boxes", inputs / "probes_dev.jsonl", "--out", tmp_path, *PREFIX, "--layout", "artifact")
    recorded = [
        *(inputs / "image_free_conf" / f"image_mismatch_seed{seed}.jsonl.gz" for seed in image_free.SEEDS),
        *(inputs / "box_robustness" / f"{variant}.jsonl.gz" for variant in VARIANTS),
    ]
    for file in recorded:
        assert (tmp_path / file.stem).read_bytes() == gzip.decompress(file.read_bytes()), file.name
    build("occlusion", inputs / "probes_dev.jsonl", "--out", tmp_path, "--limit", 2, *PREFIX)
    occluded = read_probes(tmp_path / "occlusion.jsonl").probes
    assert [probe.view for probe in occluded] == ["orig", "evidence_masked", "random_masked"] * 4


def test_text_replacement_brings_its_images(data: Path, inputs: Path, tmp_path: Path) -> None:
    images, out = data / "mini_textocr", tmp_path / "out"
    arguments = ("text-replacement", inputs / "probes_dev.jsonl", "--images", images, "--out", out, *PREFIX)
    assert "replaced     2 images" in build(*arguments, "--screen", "none", "--limit", 2)
    found = read_probes(out / "text_replacement.jsonl").probes
    assert len(found) == 16
    for probe in found:
        with Image.open(out / "images" / probe.image) as image:
            assert image.size == Image.open(images / str(probe.extra["original_image"])).size
    glyphs = read_probes(out / "edit_region.jsonl").probes
    assert all(probe.kind == "edit_region" and probe.label == "yes" for probe in glyphs)
    review = tmp_path / "review.csv"
    kept = found[0].image_id
    review.write_text(f"image_id,decision\n{kept},valid_semantic_edit\n{found[-1].image_id},invalid\n")
    build(*arguments, "--screen", "none", "--decisions", review)
    assert {probe.image_id for probe in read_probes(out / "text_replacement.jsonl").probes} == {kept}


@pytest.mark.parametrize(
    ("kind", "option", "value", "says"),
    [
        ("boxes", "--variant", "jiter", "unknown noise variant 'jiter'"),
        ("text-replacement", "--decisions", "image_id,decision\na,\n", "has no decision 'valid_semantic_edit'"),
        ("text-replacement", "--decisions", "image\na\n", "needs columns image_id and decision"),
        ("text-replacement", "--screen", "rapidcr", "unknown text detector 'rapidcr'; did you mean 'rapidocr'"),
    ],
)
def test_bad_arguments_are_one_line(
    data: Path, inputs: Path, tmp_path: Path, kind: str, option: str, value: str, says: str, refused: Refused
) -> None:
    if option == "--decisions":
        (tmp_path / "review.csv").write_text(value)
        value = str(tmp_path / "review.csv")
    images = ["--images", data / "mini_textocr"] if kind == "text-replacement" else []
    refused(says, build, kind, inputs / "probes_dev.jsonl", *images, "--out", tmp_path, *PREFIX, option, value)


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
    probes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr("sightline.controls.text_replacement.Screen.read", lambda self, image, box: "something else")
    refused("no image allows a", build, "text-replacement", probes, "--images", tmp_path, "--out", tmp_path / "out")
    with open(tmp_path / "out" / "screening.csv", newline="") as lines:
        rows = [(row["image_id"], row["passed"], row["read_sham"]) for row in csv.DictReader(lines)]
    assert rows == [("a", "False", "something else"), ("b", "False", "something else")]
    assert not (tmp_path / "out" / "text_replacement.jsonl").exists()


def test_image_free_controls_take_the_formats_options(probes: Path, tmp_path: Path, refused: Refused) -> None:
    rows = [
        {"image_id": name, "image": f"{name}.png", "words": [{"text": word, "box": [0.1, 0.1, 0.4, 0.2]}]}
        for name, word in (("a", "Total"), ("b", "Change"))
    ]
    (tmp_path / "regions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("image-free", probes, "--annotations", tmp_path / "regions.jsonl", "--out", tmp_path, "--seed", 1)
    refused("not declared", build, *arguments)
    build(*arguments, "--boxes", "xywh", "--units", "normalised")
    views = {probe.view for probe in read_probes(tmp_path / "image_free.jsonl").probes}
    assert views == {"orig", "blank", "image_mismatch_seed1"}
    build(*arguments, "--boxes", "xywh", "--units", "normalised", "--profile", "artifact")
    assert (tmp_path / "blank.jsonl").is_file()
    assert (tmp_path / "image_mismatch_seed1.jsonl").is_file()
