"""Hard pairs: which words are asked for, their near misses, and byte parity with the files of the paper's artifact."""

import gzip
import hashlib
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.core.probe import Box, Probe
from sightline.core.text import edit_distance
from sightline.errors import SightlineError
from sightline.probes import (
    HardPairRules,
    HardPairs,
    ImageRegions,
    ProbeSet,
    Word,
    audit_negatives,
    build_hard_pairs,
    hard_pairs,
    hash_side,
    lexical_audit,
    read_probes,
    read_regions,
    read_textocr,
    split_probes,
    write_probes,
)
from sightline.probes.hard_pairs import decoy_candidates, normalise_word
from sightline.probes.regions import Ingest
from tests.refusals import Refused

ANY = HardPairRules(min_area=0.0, max_area=1.0)
STRICT = replace(ANY, version="strict-v3")


def box(area: float, left: float = 0.1) -> Box:
    return (left, 0.1, left + area * 10, 0.2)


def image(*texts: str, image_id: str = "a", area: float = 0.001) -> ImageRegions:
    words = tuple(Word(text, box(area, 0.1 + 0.02 * i)) for i, text in enumerate(texts))
    return ImageRegions(image_id=image_id, image=f"{image_id}.jpg", words=words)


def asked(record: ImageRegions, rules: HardPairRules = ANY, label: str = "yes", seeds: int = 40) -> set[str]:
    """Every word, or every decoy, that some seed asks for."""
    built = (build_hard_pairs([record], replace(rules, seed=seed)).probes for seed in range(seeds))
    return {probe.target_text for probes in built for probe in probes if probe.label == label}


def near_misses(record: ImageRegions, rules: HardPairRules) -> set[str]:
    return asked(record, rules, "no", 120)


def test_a_pair_is_a_positive_followed_by_its_negative_without_edge_punctuation() -> None:
    positive, negative = build_hard_pairs([image("(Total):")], ANY).probes
    assert (positive.id, positive.label, positive.kind) == ("a:hard-small-pos", "yes", "small_positive")
    assert (negative.id, negative.label, negative.kind) == ("a:hard-nearmiss-neg", "no", "near_miss_negative")
    assert positive.question == 'Does the image contain the exact text "Total"? Answer yes or no.'
    assert positive.target_text == positive.source_text == negative.source_text == "Total"
    assert negative.target_text in decoy_candidates("Total", {"total"})
    assert positive.regions == negative.regions == (box(0.001),)
    assert [normalise_word(text) for text in ("  “x”  ", ' "(a \t b).!" ', "...")] == ["“x”", "a b", ""]


def test_a_word_that_is_asked_for_has_some_length_and_letters() -> None:
    eligible = {
        "abc": False, "abcd": True, "a" * 18: True, "a" * 19: False, "ab--cd": True, "a--bc": False, "#$%&": False,
    }  # fmt: skip
    for text, expected in eligible.items():
        assert (text in asked(image(text))) is expected, text


def test_a_word_that_is_asked_for_stands_there_once() -> None:
    twice = image("Same", "SAME,", "other")
    assert asked(twice) == {"other"}
    assert asked(twice, replace(ANY, unique=False)) == {"Same", "SAME", "other"}


def test_a_word_that_is_asked_for_is_small_and_among_the_smallest() -> None:
    record = image("word", area=0.001)
    (x1, y1, x2, y2) = record.words[0].box
    area = (x2 - x1) * (y2 - y1)
    assert asked(record, HardPairRules(min_area=area, max_area=area)) == {"word"}, "limits are inclusive"
    assert asked(record, HardPairRules(min_area=area * 1.01, max_area=1.0)) == set()
    assert asked(record, HardPairRules(min_area=0.0, max_area=area * 0.99)) == set()
    many = ImageRegions("a", "a.jpg", tuple(Word(f"word{i}", box(0.001 * (10 - i))) for i in range(10)))
    assert asked(many, replace(ANY, pool=3)) == {"word9", "word8", "word7"}
    (probe,) = build_hard_pairs([many], replace(ANY, pool=1, negatives=False)).probes
    assert probe.extra["token_area_rank"] == 1


def test_excluded_and_empty_images_count_for_no_limit() -> None:
    records = [image(f"word{i}", f"text{i}", image_id=f"i{i}") for i in range(8)]
    empty = image("no", image_id="none")
    built = build_hard_pairs([records[0], empty, *records[1:]], ANY, exclude={"i0", "i1"})
    assert built.probes == build_hard_pairs(records[2:], ANY).probes
    assert (built.excluded_images, built.images_without_candidate) == (2, 1)
    limited = build_hard_pairs([empty, *records[:5]], replace(ANY, limit_images=3)).probes
    assert [probe.image_id for probe in limited[::2]] == ["i0", "i1", "i2"]
    assert len(build_hard_pairs([empty, *records[:5]], replace(ANY, limit_images=None)).probes) == 10
    order = [f"i{i}" for i in range(8)]
    random.Random(5).shuffle(order)
    shuffled = build_hard_pairs(records, replace(ANY, seed=5, shuffle_images=True), exclude={"i3", "i4"}).probes
    assert [probe.image_id for probe in shuffled[::2]] == [name for name in order if name not in ("i3", "i4")]


def test_a_word_without_decoys_gives_its_positive_alone() -> None:
    built = build_hard_pairs([image("мир", image_id="ru")], replace(ANY, min_length=3))
    assert ([probe.label for probe in built.probes], built.images_without_decoy) == (["yes"], 1)


@pytest.mark.parametrize("word", ["10m²", "İstanbul"])
def test_a_character_without_a_successor_stops_the_first_construction_only(word: str, refused: Refused) -> None:
    refused(f"word '{word}'", build_hard_pairs, [image(word)], replace(ANY, version="development-v1"))
    assert len(build_hard_pairs([image(word)], ANY).probes) == 2


def test_a_word_within_a_line_is_neither_asked_for_nor_a_decoy() -> None:
    record = image("5.00", "QTY: 5.00 EA", "TOTAL 6.00", "6.00x")
    assert "5.00" in asked(record)
    assert "5.00" not in asked(record, replace(ANY, lines=True))
    decoys = near_misses(image("3.00", "ITEM 8.00", "13.00"), replace(ANY, max_length=4, lines=True))
    assert "8.00" in decoy_candidates("3.00", {"3.00"})
    assert "8.00" not in decoys
    assert "4.00" in decoys


def test_the_strict_construction_has_no_spaces_at_ends_nor_decoys_of_the_texts() -> None:
    assert asked(image("CASH :")) == {"CASH "}  # as the paper's constructions do, byte for byte
    assert asked(image("CASH :"), STRICT) == {"CASH"}
    assert asked(image(" ( BILL  TO : ) "), STRICT) == {"BILL TO"}
    assert "ILL TO " in near_misses(image("BILL TO :"), replace(ANY, lines=True))
    strict = near_misses(image("BILL TO :"), STRICT)
    assert not {decoy for decoy in strict if decoy.casefold() in "bill to :"}
    assert {"BIL TO", "8ILL TO"} <= strict
    assert "BIL TO" not in near_misses(image("BILL TO", "REBIL", "TOTAL"), STRICT), "across two neighbours"
    assert "BIL TO" in near_misses(image("BILL TO", "TOTAL", "REBIL"), STRICT)
    decoys = near_misses(image("Plan A now"), STRICT)
    assert decoys
    assert not {decoy for decoy in decoys if "  " in decoy or decoy != decoy.strip()}


@pytest.mark.parametrize(
    "rules",
    [
        {"version": "v3"}, {"min_length": 5, "max_length": 4}, {"min_area": 0.1, "max_area": 0.01}, {"pool": 0},
        {"limit_images": 0},
    ],
)  # fmt: skip
def test_impossible_rules_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(SightlineError):
        HardPairRules(**rules)


@given(st.text(min_size=1, max_size=20))
def test_decoys_are_near_absent_and_distinct(text: str) -> None:
    taken = {text.casefold(), "total"}
    decoys = decoy_candidates(text, taken)
    assert len(set(decoys)) == len(decoys)
    assert not {decoy.casefold() for decoy in decoys} & taken
    assert all(edit_distance(text, decoy) <= 2 for decoy in decoys)
    assert all(len(decoy) >= len(text) - 1 for decoy in decoys)


# Which words may be asked for, and what stands against the others.

RULES = HardPairRules()
SMALL: Box = (0.1, 0.1, 0.15, 0.11)
TINY: Box = (0.1, 0.1, 0.105, 0.105)
LARGE: Box = (0.1, 0.1, 0.5, 0.5)

CASES: dict[str, tuple[str, Box, dict[str, Any]]] = {
    "too short": ("abc", SMALL, {"min_length": 3}),
    "too long": ("a" * 19, SMALL, {"max_length": 19}),
    "too small": ("total", TINY, {"min_area": 1e-5}),
    "too large": ("total", LARGE, {"max_area": 0.2}),
    "mostly symbols": ("a--bc", SMALL, {"max_symbol_share": 0.4}),
    "repeated": ("twice", SMALL, {"unique": False}),
}
"""Obstacle -> a word that meets it and nothing else, and the rule that lets it through."""


def met(text: str, box: Box, rules: HardPairRules = RULES) -> list[str]:
    return list(hard_pairs.obstacles(text, box, hard_pairs.Presence([text, "twice"]), rules))


def test_every_obstacle_is_named_with_the_option_that_lifts_it_if_one_does() -> None:
    assert set(CASES) == set(hard_pairs.REMEDIES), "every suggestion is tried"
    for obstacle, (text, place, lifted) in CASES.items():
        assert met(text, place) == [obstacle]
        assert met(text, place, replace(RULES, **lifted)) == [], obstacle
        (field,) = lifted
        assert field.replace("_", "-") in hard_pairs.REMEDIES[obstacle]
    assert met("", SMALL) == ["without text"]
    assert met("#$%&", SMALL) == ["without a letter or digit"]
    assert met("total", (0.9, 0.9, 1.01, 0.901)) == ["outside the image"]
    assert met("ab", LARGE) == ["too short", "too large"]
    words = [("total", SMALL), ("ab", SMALL), ("other", (0.1, 0.1, 0.12, 0.11)), ("large", LARGE)]
    found = hard_pairs.candidates(words, hard_pairs.Presence(text for text, _ in words), RULES)
    assert [candidate.text for candidate in found] == ["other", "total"]


def test_the_suggestion_is_the_option_that_helps_most_images_or_none() -> None:
    images = {
        "a": [("total", LARGE), ("cash", LARGE), ("change", LARGE), ("ab", SMALL)],
        "b": [("ab", LARGE), ("cd", LARGE), ("ef", SMALL)],
        "c": [("fine", SMALL), ("ab", LARGE)],
    }
    records = [ImageRegions(name, name, tuple(Word(*word) for word in words)) for name, words in images.items()]
    pairs = build_hard_pairs(records, RULES)
    assert {probe.image_id for probe in pairs.probes} == {"c"}
    assert pairs.images_without_candidate == pairs.shortage.images == 2
    assert pairs.shortage.in_words() == (
        "5 words too large, 4 words too short; a smaller --min-length would give one to 2 of the 2 images"
    )
    shortage = hard_pairs.Shortage()
    shortage.add([("", SMALL), ("ab", LARGE)], hard_pairs.Presence(["ab"]), RULES)
    assert shortage.in_words() == "1 word without text, 1 word too short"
    assert hard_pairs.Shortage().in_words() == ""


# Byte parity with files that the paper's artifact wrote.

PREFIX = "mini_textocr"
BOX_VARIANTS = ("gt", "jitter_light", "jitter_heavy", "detected_like", "low_recall", "missing")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def inputs(data: Path) -> Path:
    return data / "golden_e2e" / "inputs"


@pytest.fixture(scope="module")
def mini(data: Path) -> Ingest:
    return read_textocr(data / "mini_textocr" / "TextOCR_mini_val.json", pairing="shifted", small_boxes="normalised")


@pytest.fixture(scope="module")
def dev(mini: Ingest) -> HardPairs:
    return build_hard_pairs(mini.records, HardPairRules(version="development-v1", seed=17, limit_images=52))


@pytest.fixture(scope="module")
def golden(data: Path) -> dict[str, Any]:
    folder = data / "protocol" / "golden_json"
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json") if path.stem != "selectors"}


def test_files_of_the_artifact_survive_a_round_trip(inputs: Path, dev: HardPairs, tmp_path: Path) -> None:
    target = tmp_path / "probes.jsonl"
    digests = {name: digest for digest, name in map(str.split, (inputs / "sha256.txt").read_text().splitlines())}
    for name in (
        *(f"box_robustness/{variant}.jsonl" for variant in BOX_VARIANTS),
        *(f"image_free_conf/image_mismatch_seed{seed}.jsonl" for seed in (101, 202, 303)),
    ):
        read = read_probes(inputs / f"{name}.gz", image_prefix=PREFIX)
        assert any(probe.image_id not in probe.image for probe in read.probes) == ("mismatch" in name)
        write_probes(target, read, layout="artifact", image_prefix=PREFIX)
        assert sha256(target) == digests[name], name
    source = inputs / "occlusion_probes.jsonl.gz"
    write_probes(target, read_probes(source), layout="artifact")
    with gzip.open(source, "rt") as stream:
        assert [json.loads(line) for line in target.read_text().splitlines()] == [json.loads(line) for line in stream]
    regions = read_regions(inputs / "regions.jsonl.gz", image_prefix=PREFIX)
    rebuilt = build_hard_pairs(regions.records, HardPairRules(version="development-v1", limit_images=52))
    read = read_probes(inputs / "probes_dev.jsonl", image_prefix=PREFIX)
    assert rebuilt.probes == read.probes == dev.probes
    assert read.digest == ProbeSet(dev.probes).digest


def test_hard_builder_and_decoy_cases(golden: dict[str, Any], tmp_path: Path) -> None:
    expected = golden["hard_builder_expected"]
    (tmp_path / "regions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in golden["hard_builder_regions"]))
    records = read_regions(tmp_path / "regions.jsonl").records
    first = build_hard_pairs(records, HardPairRules(version="development-v1", limit_images=20))
    shuffled = HardPairRules(seed=20260720, shuffle_images=True, limit_images=20)
    second = build_hard_pairs(records, shuffled, exclude={probe.image_id for probe in first.probes})
    for name, pairs in (("dev", first), ("conf", second)):
        write_probes(tmp_path / name, pairs.probes, layout="artifact")
        assert (tmp_path / name).read_text().splitlines() == expected[name]["lines"]
        assert sha256(tmp_path / name) == expected[name]["sha256"]
    assert len(expected["decoy_candidates"]) == 12
    for case, decoys in expected["decoy_candidates"].items():
        version, _, text = case.partition("|")
        assert decoy_candidates(text, {text.casefold()}, version) == decoys, case


def test_lexical_tables_are_byte_identical(mini: Ingest, dev: HardPairs, inputs: Path, tmp_path: Path) -> None:
    rules = HardPairRules(seed=20260720, shuffle_images=True, limit_images=50)
    conf = build_hard_pairs(mini.records, rules, exclude={probe.image_id for probe in dev.probes})
    for name, pairs in (("dev", dev), ("conf", conf)):
        written = lexical_audit.write_audit(tmp_path, audit_negatives(pairs.probes, mini.records))
        assert {path.name for path in written} == set(lexical_audit.TABLES)
        for path in written:
            assert path.read_bytes() == (inputs / f"lexical_{name}" / path.name).read_bytes(), path.name


def test_normaliser_edit_and_split_vectors_and_published_counts(golden: dict[str, Any], data: Path) -> None:
    misc = golden["misc"]
    for text, expected in misc["normalizers"].items():
        assert {name: normalise(text) for name, normalise in lexical_audit.NORMALISERS.items()} == expected
        assert list(expected) == list(lexical_audit.NORMALISERS)
    for source, target, distance in misc["levenshtein"]:
        assert edit_distance(source, target) == distance
    for source, target, kind, changed in misc["edit_class"]:
        folded = lexical_audit.nfkc_casefold(source), lexical_audit.nfkc_casefold(target)
        assert (lexical_audit.edit_type(*folded), lexical_audit.changed_char_class(*folded)) == (kind, changed)
    assert {group: hash_side(group) for group in misc["hash_split"]} == misc["hash_split"]
    ids = (data / "protocol" / "paper_evidence" / "sample_ids.txt").read_text().split()
    probes = [Probe(id, "x.jpg", id.partition(":")[0].removeprefix("textocr-"), "?", "yes", "", "", ()) for id in ids]
    by_image = split_probes(probes)
    assert {side: len(part) for side, part in by_image.items()} == {"dev": 464, "test": 536}
    assert {side: len(ProbeSet(part).image_ids) for side, part in by_image.items()} == {"dev": 232, "test": 268}
    by_record = split_probes(probes, group_by="record")
    assert {side: len(part) for side, part in by_record.items()} == {"dev": 506, "test": 494}
