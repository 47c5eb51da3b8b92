"""The lexical audit of negatives, and what people decided about them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.controls.text_replacement import reviewed_images
from sightline.core.probe import Probe
from sightline.core.text import edit_distance
from sightline.probes import ImageRegions, Word, audit_negatives
from sightline.probes.lexical_audit import difficulty_bucket, rank_bucket, shape
from sightline.probes.typed_rows import SignedDecision, is_decision_file, read_decision_file, write_decisions
from sightline.rows.source import read_probe_list
from tests.refusals import Refused

WORDS = st.text("abcé1'", max_size=8)


@given(WORDS, WORDS, WORDS)
def test_edit_distance_is_a_metric(a: str, b: str, c: str) -> None:
    assert edit_distance(a, b) == edit_distance(b, a)
    assert (edit_distance(a, b) == 0) == (a == b)
    assert edit_distance(a, c) <= edit_distance(a, b) + edit_distance(b, c)
    assert abs(len(a) - len(b)) <= edit_distance(a, b) <= max(len(a), len(b))


def test_shapes_and_buckets() -> None:
    assert shape("Aé-1") == "alpha+digit+punct+non_ascii"
    assert shape(" ") == "other"
    assert [difficulty_bucket(value) for value in (0.1, 0.2, 0.35, 0.36)] == [
        "norm_edit_le_0p10", "norm_edit_0p10_to_0p20", "norm_edit_0p20_to_0p35", "norm_edit_gt_0p35",
    ]  # fmt: skip
    assert [rank_bucket(rank) for rank in (1, 5, 10, 11, None)] == [
        "rank_1", "rank_2_to_5", "rank_6_to_10", "rank_gt_10", "rank_unknown",
    ]  # fmt: skip


def negative(source: str, target: str, image_id: str = "a") -> Probe:
    return Probe(f"{image_id}:neg", f"{image_id}.jpg", image_id, "?", "no", target, source, ())


def image(image_id: str, *texts: str) -> ImageRegions:
    return ImageRegions(image_id, f"{image_id}.jpg", tuple(Word(text, (0.0, 0.0, 1.0, 1.0)) for text in texts))


@pytest.mark.parametrize(
    ("source", "target", "regions", "found"),
    [
        ("ink'", "in'", [image("a", "ink'", "In")],
         {"collisions": ("nfkc_casefold_alnum", "ascii_fold_alnum"), "colliding_words": ("In",)}),
        ("6.00", "5.00", [image("a", "6.00", "QTY: 5.00", "15.00")],
         {"collisions": (), "within": ("QTY: 5.00",), "reasons": ("within_longer_text",)}),
        ("door", "doom", [image("a", "door"), image("b", "Doom", "doom!"), image("c", "doom")],
         {"other_images_casefold": 2, "other_images_alnum": 2, "reasons": ("near_miss_is_real_ocr_token_elsewhere",)}),
        ("мир", "мар", [image("a", "мир", "мор")], {"same_as_source": (), "collisions": ()}),
    ],
    ids=["punctuation dropped", "within a line", "in other images", "strings that vanish"],
)  # fmt: skip
def test_where_a_decoy_stands_is_found(
    source: str, target: str, regions: list[ImageRegions], found: dict[str, object], refused: Refused
) -> None:
    """Missing regions are an error, not a clean bill."""
    (finding,) = audit_negatives([negative(source, target)], regions).findings
    assert {name: getattr(finding, name) for name in found} == found
    assert ("same_image_collision" in finding.reasons) == bool(finding.collisions)
    refused("1 probe has no region record", audit_negatives, [negative("door", "doom", "z")], [image("a", "door")])
    refused("no negatives", audit_negatives, [], [image("a", "door")])


DECISIONS = (
    SignedDecision("a-no", "a", ("a-yes", "a-no"), "valid_negative", True, "agreement"),
    SignedDecision("b-no", "b", ("b-yes", "b-no"), "unclear", False, "adjudicated"),
)


@pytest.fixture
def signed(tmp_path: Path) -> Path:
    write_decisions(tmp_path / "decisions.jsonl", {"kind": "hard-negatives", "signed_by": "dora"}, DECISIONS)
    return tmp_path / "decisions.jsonl"


def test_signed_decisions_are_read_as_written(signed: Path) -> None:
    found = read_decision_file(signed)
    assert found.decisions == DECISIONS
    assert found.head["signed_by"] == "dora"
    assert is_decision_file(signed)
    assert read_probe_list(signed).ids == {"a-yes", "a-no"}, "both probes of a valid image"
    assert reviewed_images(signed) == {"a"}


def test_decisions_that_were_changed_or_of_which_none_is_valid_are_refused(signed: Path, refused: Refused) -> None:
    text = signed.read_text()
    for changed in (text.replace('"valid": false', '"valid": true'), "\n".join(text.splitlines()[:-1])):
        signed.write_text(changed, encoding="utf-8")
        refused("changed after it was signed off by dora", read_decision_file, signed)
    write_decisions(signed, {"signed_by": "dora"}, DECISIONS[1:])
    refused("valid, so there is nothing to report", read_probe_list, signed)
    refused("valid, so there is nothing to build", reviewed_images, signed)


def test_another_file_is_none_of_decisions(tmp_path: Path, refused: Refused) -> None:
    other = tmp_path / "ids.txt"
    other.write_text("a-yes\n", encoding="utf-8")
    assert not is_decision_file(other)
    assert not is_decision_file(tmp_path / "missing")
    refused("not JSON", read_decision_file, other)
