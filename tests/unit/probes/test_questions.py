"""Which of the questions that annotations bring along a probe set takes, and what open ones are compared with."""

import random
from dataclasses import replace

from sightline.core.probe import Probe
from sightline.probes import HardPairRules
from sightline.probes.formats.published_questions import PUBLISHED
from sightline.probes.questions import add_decoys, refuse_word_rules, sample_questions, take_questions
from tests.refusals import Refused

RULES = HardPairRules()
PROBES = [
    Probe(f"q{number}", f"{image}.jpg", image, "Is it?", "yes", "it", "it", ()) for number, image in enumerate("abacb")
]


def ids(rules: HardPairRules, *exclude: str) -> list[str]:
    return [probe.id for probe in take_questions(PROBES, rules, exclude).probes]


def test_questions_stay_in_file_order_or_together_by_image_and_take_no_rule_about_words(refused: Refused) -> None:
    assert ids(RULES) == ["q0", "q1", "q2", "q3", "q4"]
    assert ids(replace(RULES, limit_images=2)) == ["q0", "q1", "q2", "q4"]
    assert ids(replace(RULES, limit_images=1), "a") == ["q1", "q4"]
    assert take_questions(PROBES, RULES, {"a", "elsewhere"}).excluded_images == 1
    orders = {tuple(ids(replace(RULES, shuffle_images=True, seed=seed))) for seed in range(20)}
    assert len(orders) == 6
    assert ("q3", "q1", "q4", "q0", "q2") in orders
    refuse_word_rules(replace(RULES, seed=3, limit_images=None, shuffle_images=True), "gsr")
    for changed, option in (({"min_length": 3}, "--min-length"), ({"negatives": False}, "--no-negatives")):
        refused(f"{option} is about words", refuse_word_rules, replace(RULES, **changed), "gsr")


def question(number: int, kind: str, *answers: str, decoy: str = "") -> Probe:
    return Probe(
        f"t:{number}", f"{number}.png", str(number), "?", "open", "", "", (), kind=kind,
        answers=answers or (f"answer {number}",), task="t", decoy=decoy,
    )  # fmt: skip


def test_each_kind_is_shuffled_in_the_benchmarks_order_and_one_with_few_questions_gives_all() -> None:
    kinds = ["z new", "Key Information Extraction", "Regular Text Recognition", "a new"]
    probes = [question(number, kinds[number % 4]) for number in range(48)]
    # Written out once more, call by call.
    rng = random.Random(29)
    drawn: list[tuple[str, int]] = []
    for kind in ("Regular Text Recognition", "Key Information Extraction", "a new", "z new"):
        rows = [number for number in range(48) if kinds[number % 4] == kind]
        rng.shuffle(rows)
        drawn += [(kind, number) for number in rows[:5]]
    ours = random.Random(29)
    found = sample_questions(probes, 5, ours, PUBLISHED["ocrbench"].kinds)
    assert [(probe.kind, int(probe.image_id)) for probe in found] == sorted(drawn)
    assert ours.random() == rng.random()
    probes = [question(0, "few"), *(question(number, "many") for number in range(1, 100))]
    assert [probe.kind for probe in sample_questions(probes, 2, random.Random(0))] == ["few", "many", "many"]
    samples = {tuple(probe.id for probe in sample_questions(probes, 10, random.Random(seed))) for seed in range(5)}
    assert len(samples) == 5


def test_a_decoy_is_one_draw_among_other_answers_of_the_kind_or_of_any() -> None:
    pool = [
        question(0, "k", "Mill"), question(1, "k", "mill"), question(2, "k", "Lane"), question(3, "k", "Lane"),
        question(4, "other", "elsewhere"), question(5, "k", "two\n words"),
    ]  # fmt: skip
    (probe,) = add_decoys(pool[:1], pool, random.Random(29))
    assert probe.decoy == random.Random(29).choice(["Lane", "two words"])
    pool = [question(0, "k", "Mill"), question(1, "k", "MILL"), question(2, "other", "Lane")]
    assert [probe.decoy for probe in add_decoys(pool[:2], pool, random.Random(1))] == ["Lane", "Lane"]


def test_a_decoy_is_never_an_accepted_answer() -> None:
    accepted = [question(0, "k", "12", "12.0", "twelve"), question(1, "k", "12.0"), question(2, "k", "13")]
    drawn = {add_decoys(accepted[:1], accepted, random.Random(seed))[0].decoy for seed in range(20)}
    assert drawn == {"13"}
    assert add_decoys(accepted[:1], accepted[:2], random.Random(0))[0].decoy == ""


def test_a_decoy_of_the_file_stays_and_yes_or_no_needs_none() -> None:
    pool = [question(0, "k", "a", decoy="mine"), question(1, "k", "b"), question(2, "k", "c"), question(3, "k", "d")]
    given, probe = add_decoys(pool[:2], pool, random.Random(3))
    assert given.decoy == "mine"
    assert probe.decoy == random.Random(3).choice(["a", "c", "d"])
    assert add_decoys(PROBES[:1], [PROBES[0], question(1, "k")], random.Random(0)) == (PROBES[0],)
