"""Cases chosen by outcome follow the paper's rule; cases drawn by lot do not look at answers."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.paper.case_sampling import OpenCase, case_count, cases_of, chosen_by_outcome, stratified_sample

ARMS = ("full", "target_grid:0.3", "target_grid:0.5", "target_grid:0.7")
TAGS = ("numeric answer",)


def frame(scores: dict[str, tuple[float | None, ...]], task: str = "docvqa") -> pd.DataFrame:
    """Scores of questions under the four arms; None: no row."""
    return pd.DataFrame(
        [
            {"probe_id": probe, "task": task, "arm": arm, "score": score}
            for probe, line in scores.items()
            for arm, score in zip(ARMS, line, strict=True)
            if score is not None
        ]
    )


def case(name: str, *drops: float, full: float = 1.0, tags: tuple[str, ...] = (), task: str = "docvqa") -> OpenCase:
    low, mid, high = drops
    return OpenCase(name, task, full, (low, mid, high), tags)


def test_cases_are_questions_with_all_four_answers_and_hold_what_each_budget_lost() -> None:
    rows = frame({"b": (0.9, 0.4, 0.6, 1.0), "a": (1.0, 1.0, None, 1.0)})
    (found,) = cases_of(rows, ARMS, {"b": TAGS})
    assert (found.id, found.task, found.full, found.tags) == ("b", "docvqa", 0.9, TAGS)
    assert found.drops == pytest.approx((0.5, 0.3, -0.1))
    with pytest.raises(SightlineError, match="three budgets"):
        cases_of(rows, ARMS[:2], {})


def test_a_drop_of_exactly_a_half_is_large_and_of_exactly_a_fifth_small() -> None:
    (found,) = cases_of(frame({"a": (0.9, 0.4, 0.9, 0.7)}), ARMS, {})
    assert found.low
    assert found.recovered
    assert not found.mid
    assert not found.persistent


@pytest.mark.parametrize(
    ("drops", "tags", "kinds"),
    [
        ((1.0, 1.0, 1.0), (), {"low", "mid", "persistent"}),
        ((1.0, 0.0, 0.0), (), {"low", "recovered"}),
        ((1.0, 0.0, 0.3), (), {"low"}),
        ((0.0, 0.6, 0.0), (), {"mid"}),
        ((0.0, 0.0, 0.0), TAGS, {"control"}),
        ((0.0, 0.0, 0.0), (), set()),
        ((0.3, 0.3, 0.3), TAGS, set()),
    ],
)
def test_kinds_of_a_case_follow_from_its_drops_and_tags(
    drops: tuple[float, ...], tags: tuple[str, ...], kinds: set[str]
) -> None:
    found = case("a", *drops, tags=tags)
    names = ("low", "mid", "persistent", "recovered", "control")
    assert {name for name in names if getattr(found, name)} == kinds
    assert found.candidate == bool(kinds)


def test_what_full_could_not_answer_is_no_candidate() -> None:
    assert case("a", 0.8, 0.8, 0.8, full=0.8).candidate
    assert not case("a", 0.7, 0.7, 0.7, full=0.79).candidate


def many(task: str = "docvqa") -> list[OpenCase]:
    """100 questions: 20 persistent, 15 lost at 50 %, 30 recovered by 70 %, 15 controls, 20 that are nothing."""
    kinds = {
        "persistent": (20, (1.0, 1.0, 1.0), ()),
        "mid": (15, (0.9, 0.9, 0.4), ()),
        "recovered": (30, (0.8, 0.3, 0.1), ()),
        "control": (15, (0.1, 0.0, 0.0), TAGS),
        "nothing": (20, (0.1, 0.0, 0.0), ()),
    }
    return [
        case(f"{task}:{name}-{number:02d}", *drops, tags=tags, task=task)
        for name, (count, drops, tags) in kinds.items()
        for number in range(count)
    ]


def kinds(chosen: list[OpenCase]) -> Counter[str]:
    return Counter(found.id.partition(":")[2].partition("-")[0] for found in chosen)


def test_a_quarter_of_the_cases_each_is_persistent_mid_recovered_and_control() -> None:
    chosen = chosen_by_outcome([*many(), *many("textvqa")])
    assert Counter(found.task for found in chosen) == {"docvqa": 48, "textvqa": 48}
    own = [found for found in chosen if found.task == "docvqa"]
    # Whoever is persistent dropped at 50 % too: the 8 that the first quota left over come first in the second.
    assert kinds(own) == {"persistent": 20, "mid": 4, "recovered": 12, "control": 12}
    assert len({found.id for found in chosen}) == 96


def test_what_the_quotas_leave_open_is_topped_up_with_other_candidates() -> None:
    short = [found for found in many() if "-0" in found.id or "nothing" in found.id or "recovered" in found.id]
    chosen = chosen_by_outcome([*short, *(case(f"docvqa:nothing-{n}", 0.0, 0.0, 0.0) for n in range(20, 60))])
    # 10 persistent, 10 mid and 10 controls are all there are; 12 recovered and 6 more of them to make 48.
    assert kinds(chosen) == {"persistent": 10, "mid": 10, "recovered": 18, "control": 10}


def test_the_greatest_drop_comes_first_then_the_most_tags_then_the_id() -> None:
    cases = [
        case("d", 0.6, 0.6, 0.6), case("c", 0.9, 0.6, 0.6), case("b", 0.6, 0.6, 0.6, tags=TAGS),
        case("a", 0.6, 0.6, 0.6), *(case(f"x{n}", 0.0, 0.0, 0.0) for n in range(4)),
    ]  # fmt: skip
    assert case_count(len(cases)) == 4
    assert [found.id for found in chosen_by_outcome(cases)] == ["c", "b", "a", "d"]


def test_too_few_candidates_stay_few_unless_a_demonstration_fills_them_up() -> None:
    cases = [case("a", 1.0, 1.0, 1.0), *(case(f"x{n}", 0.0, 0.0, 0.0) for n in range(9))]
    assert [found.id for found in chosen_by_outcome(cases)] == ["a"]
    assert [found.id for found in chosen_by_outcome(cases, fill=True)] == ["a", "x0", "x1", "x2", "x3"]


def test_a_small_set_gives_half_of_its_questions() -> None:
    assert [case_count(questions) for questions in (500, 96, 95, 12, 1)] == [48, 48, 47, 6, 0]


def test_the_stratified_sample_has_every_set_of_tags_in_its_share_of_each_task() -> None:
    cases = [*many(), *(replace(found, id=f"t{found.id}") for found in many("textvqa"))]
    chosen = stratified_sample(cases)
    for task in ("docvqa", "textvqa"):
        own = [found for found in chosen if found.task == task]
        assert len(own) == 48
        # 15 of 100 questions are tagged: 7.2 of 48, and 40.8 are not, whose remainder is the larger.
        assert sum(found.tags == TAGS for found in own) == 7
    assert len({found.id for found in chosen}) == 96


def test_the_stratified_sample_does_not_look_at_answers() -> None:
    cases = many()
    blind = [replace(found, full=0.0, drops=(0.0, 0.0, 0.0)) for found in cases]
    assert [found.id for found in stratified_sample(cases)] == [found.id for found in stratified_sample(blind)]
    shuffled = stratified_sample(reversed(cases))
    assert [found.id for found in shuffled] == [found.id for found in stratified_sample(cases)]
    assert stratified_sample(cases, seed=1) != stratified_sample(cases, seed=2)
