"""Which items come, in which order, and which of them twice: the paper's rules."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sightline.annotate.items import SamplingRule, apportioned, drawn_items, first_items, hashed, second_sample
from sightline.errors import SightlineError
from tests.unit.annotate.sample_task import sample_items


def test_the_suspicious_come_first_by_id_and_the_rest_as_it_came(tmp_path: Path) -> None:
    items = sample_items(tmp_path, 6)[::-1]
    items = [replace(item, suspicion=("odd",)) if item.id in ("item-004", "item-001") else item for item in items]
    drawn = [item.id for item in drawn_items(items, SamplingRule())]
    assert drawn == ["item-001", "item-004", "item-005", "item-003", "item-002", "item-000"]


def test_a_sample_takes_one_of_each_stratum_in_turn(tmp_path: Path) -> None:
    items = sample_items(tmp_path, 40)
    chosen = first_items(items, 14)
    assert Counter(item.stratum for item in chosen) == dict.fromkeys((f"stratum {n}" for n in range(7)), 2)
    assert [item.id for item in chosen[:7]] == [f"item-{n:03d}" for n in range(7)]


def test_five_batches_of_a_hundred_give_twenty_each_in_proportion(tmp_path: Path) -> None:
    drawn = drawn_items(sample_items(tmp_path, 500), SamplingRule(second=0.2, seed="any"))
    assert Counter(item.batch for item in drawn if item.second) == dict.fromkeys(range(5), 20)
    for batch in range(5):
        own = [item for item in drawn if item.batch == batch]
        assert set(Counter(item.difficulty for item in own if item.second).values()) == {5}


def test_within_a_difficulty_the_smallest_hashes_are_taken(tmp_path: Path) -> None:
    items = sample_items(tmp_path, 40)
    chosen = second_sample(items, 0.2, "seed")
    for name in {item.difficulty for item in items}:
        own = sorted((item.id for item in items if item.difficulty == name), key=lambda id_: hashed("seed", id_))
        assert chosen & set(own) == set(own[:2])
    assert chosen != second_sample(items, 0.2, "another seed")


@pytest.mark.parametrize(("items", "twice"), [(2, 0), (3, 1), (5, 1), (12, 2), (13, 3)])
def test_the_share_of_a_batch_is_rounded_to_the_nearest(tmp_path: Path, items: int, twice: int) -> None:
    assert len(second_sample(sample_items(tmp_path, items), 0.2, "seed")) == twice


def test_the_hash_is_that_of_the_protocol() -> None:
    # printf '%s' 'hard-negative-secondary-100-v1|a' | sha256sum
    assert hashed("hard-negative-secondary-100-v1", "a").startswith("05779fecf2901991")


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.integers(1, 60), min_size=1, max_size=6), st.data())
def test_seats_are_shared_out_exactly_and_nearly_in_proportion(sizes: dict[str, int], data: st.DataObject) -> None:
    total = data.draw(st.integers(0, sum(sizes.values())))
    seats = apportioned(sizes, total)
    assert sum(seats.values()) == total
    for name, size in sizes.items():
        assert abs(seats[name] - total * size / sum(sizes.values())) < 1
        assert seats[name] <= size


def test_ties_go_to_the_first_name() -> None:
    assert apportioned({"b": 1, "a": 1, "c": 1}, 1) == {"b": 0, "a": 1, "c": 0}


@pytest.mark.parametrize("wrong", [{"n": 0}, {"second": 1.5}, {"batch": 0}])
def test_rules_that_draw_nothing_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(SightlineError):
        SamplingRule(**wrong)  # type: ignore[arg-type]
