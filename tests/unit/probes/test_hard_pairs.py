from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes import HardPairRules, ImageRegions, Word, build_hard_pairs
from sightline.probes.hard_pairs import decoy_candidates, normalise_word
from sightline.probes.lexical_audit import edit_distance

ANY = HardPairRules(min_area=0.0, max_area=1.0)


def box(area: float, left: float = 0.1) -> Box:
    return (left, 0.1, left + area * 10, 0.2)


def image(*texts: str, image_id: str = "a", area: float = 0.001) -> ImageRegions:
    words = tuple(Word(text, box(area, 0.1 + 0.02 * i)) for i, text in enumerate(texts))
    return ImageRegions(image_id=image_id, image=f"{image_id}.jpg", words=words)


def asked(record: ImageRegions, rules: HardPairRules = ANY) -> set[str]:
    """Every word that some seed asks for."""
    seeds = (replace(rules, seed=seed, negatives=False) for seed in range(40))
    return {probe.target_text for some in seeds for probe in build_hard_pairs([record], some).probes}


def test_a_pair_is_a_positive_followed_by_its_negative() -> None:
    positive, negative = build_hard_pairs([image("(Total):")], ANY).probes
    assert (positive.id, positive.label, positive.kind) == ("a:hard-small-pos", "yes", "small_positive")
    assert (negative.id, negative.label, negative.kind) == ("a:hard-nearmiss-neg", "no", "near_miss_negative")
    assert positive.question == 'Does the image contain the exact text "Total"? Answer yes or no.'
    assert positive.target_text == positive.source_text == negative.source_text == "Total"
    assert negative.target_text in decoy_candidates("Total", {"total"})
    assert positive.regions == negative.regions == (box(0.001),)


def test_words_are_asked_for_without_edge_punctuation() -> None:
    assert normalise_word("  “x”  ") == "“x”"
    assert normalise_word(' "(a \t b).!" ') == "a b"
    assert normalise_word("...") == ""


@pytest.mark.parametrize(
    ("text", "eligible"),
    [
        ("abc", False),
        ("abcd", True),
        ("a" * 18, True),
        ("a" * 19, False),
        ("ab--cd", True),
        ("a--bc", False),
        ("#$%&", False),
    ],
)
def test_length_and_symbols(text: str, eligible: bool) -> None:
    assert (text in asked(image(text))) is eligible


def test_words_that_occur_twice_in_any_case_are_not_asked_for() -> None:
    record = image("Same", "SAME,", "other")
    assert asked(record) == {"other"}
    assert asked(record, replace(ANY, unique=False)) == {"Same", "SAME", "other"}


def test_area_limits_are_inclusive() -> None:
    record = image("word", area=0.001)
    (x1, y1, x2, y2) = record.words[0].box
    area = (x2 - x1) * (y2 - y1)
    assert asked(record, HardPairRules(min_area=area, max_area=area)) == {"word"}
    assert asked(record, HardPairRules(min_area=area * 1.01, max_area=1.0)) == set()
    assert asked(record, HardPairRules(min_area=0.0, max_area=area * 0.99)) == set()


def test_only_the_smallest_are_in_the_pool() -> None:
    words = tuple(Word(f"word{i}", box(0.001 * (10 - i))) for i in range(10))
    record = ImageRegions("a", "a.jpg", words)
    assert asked(record, replace(ANY, pool=3)) == {"word9", "word8", "word7"}
    (probe,) = build_hard_pairs([record], replace(ANY, pool=1, negatives=False)).probes
    assert probe.extra["token_area_rank"] == 1


def test_excluded_and_empty_images_draw_nothing() -> None:
    records = [image(f"word{i}", f"text{i}", image_id=f"i{i}") for i in range(8)]
    alone = build_hard_pairs(records[2:], ANY).probes
    padded = [records[0], image("no", image_id="none"), *records[1:]]
    built = build_hard_pairs(padded, ANY, exclude={"i0", "i1"})
    assert built.probes == alone
    assert (built.excluded_images, built.images_without_candidate) == (2, 1)


def test_limit_counts_images_that_gave_a_probe() -> None:
    records = [image("no", image_id="none"), *(image("word", image_id=f"i{i}") for i in range(5))]
    built = build_hard_pairs(records, replace(ANY, limit_images=3))
    assert [probe.image_id for probe in built.probes[::2]] == ["i0", "i1", "i2"]
    assert len(build_hard_pairs(records, replace(ANY, limit_images=None)).probes) == 10


def test_shuffling_comes_before_exclusion() -> None:
    records = [image("word", image_id=f"i{i}") for i in range(30)]
    order = [f"i{i}" for i in range(30)]
    random.Random(5).shuffle(order)
    built = build_hard_pairs(records, replace(ANY, seed=5, shuffle_images=True), exclude={"i3", "i4"})
    assert [probe.image_id for probe in built.probes[::2]] == [name for name in order if name not in ("i3", "i4")]


def test_an_image_without_decoys_still_gives_its_positive() -> None:
    built = build_hard_pairs([image("мир", image_id="ru")], replace(ANY, min_length=3))
    assert [probe.label for probe in built.probes] == ["yes"]
    assert built.images_without_decoy == 1


@pytest.mark.parametrize("word", ["10m²", "İstanbul"])
def test_characters_without_successor_stop_the_first_construction_only(word: str) -> None:
    with pytest.raises(SightlineError, match=rf"image 'a': word '{word}': .* use --version confirmation-v2"):
        build_hard_pairs([image(word)], replace(ANY, version="development-v1"))
    assert len(build_hard_pairs([image(word)], ANY).probes) == 2


def test_lines_hide_words() -> None:
    record = image("5.00", "QTY: 5.00 EA", "TOTAL 6.00", "6.00x")
    assert "5.00" in asked(record)
    assert "5.00" not in asked(record, replace(ANY, lines=True))
    source = image("3.00", "ITEM 8.00", "13.00")
    decoys = set()
    for seed in range(60):
        rules = replace(ANY, seed=seed, max_length=4, lines=True)
        decoys |= {probe.target_text for probe in build_hard_pairs([source], rules).probes if probe.label == "no"}
    assert "8.00" in decoy_candidates("3.00", {"3.00"})
    assert "8.00" not in decoys
    assert "4.00" in decoys


STRICT = replace(ANY, version="strict-v3")


def near_misses(record: ImageRegions, rules: HardPairRules) -> set[str]:
    """Every decoy that some seed asks for."""
    built = (build_hard_pairs([record], replace(rules, seed=seed)).probes for seed in range(120))
    return {probe.target_text for probes in built for probe in probes if probe.label == "no"}


def test_the_strict_construction_asks_for_no_space_at_the_ends() -> None:
    assert asked(image("CASH :")) == {"CASH "}  # as the paper's constructions do, byte for byte
    assert asked(image("CASH :"), STRICT) == {"CASH"}
    assert asked(image(" ( BILL  TO : ) "), STRICT) == {"BILL TO"}


def test_the_strict_construction_makes_no_decoy_that_stands_within_its_own_text() -> None:
    assert "ILL TO " in near_misses(image("BILL TO :"), replace(ANY, lines=True))
    strict = near_misses(image("BILL TO :"), STRICT)
    assert not {decoy for decoy in strict if decoy.casefold() in "bill to :"}
    assert {"BIL TO", "8ILL TO"} <= strict


def test_the_strict_construction_makes_no_decoy_that_stands_across_two_neighbours() -> None:
    assert "BIL TO" not in near_misses(image("BILL TO", "REBIL", "TOTAL"), STRICT)
    assert "BIL TO" in near_misses(image("BILL TO", "TOTAL", "REBIL"), STRICT)


def test_the_strict_construction_makes_no_decoy_with_a_space_too_many() -> None:
    decoys = near_misses(image("Plan A now"), STRICT)
    assert decoys
    assert not {decoy for decoy in decoys if "  " in decoy or decoy != decoy.strip()}


@pytest.mark.parametrize(
    "rules",
    [
        {"version": "v3"},
        {"min_length": 5, "max_length": 4},
        {"min_area": 0.1, "max_area": 0.01},
        {"pool": 0},
        {"limit_images": 0},
    ],
)
def test_impossible_rules_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(SightlineError):
        HardPairRules(**rules)  # type: ignore[arg-type]


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=20))
def test_decoys_are_near_absent_and_distinct(text: str) -> None:
    taken = {text.casefold(), "total"}
    decoys = decoy_candidates(text, taken)
    assert len(set(decoys)) == len(decoys)
    assert not {decoy.casefold() for decoy in decoys} & taken
    assert all(edit_distance(text, decoy) <= 2 for decoy in decoys)
    assert all(len(decoy) >= len(text) - 1 for decoy in decoys)
