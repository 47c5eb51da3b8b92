"""Every score of an answer in words a second time, and 1,000 pairs on which both must agree.

``python -m tests.independent.answer_scores`` prints how often they do. Nothing here comes from
``sightline.answering.answer_scores``: distances are defined by recursion, leaving one person out by listing who is
left, contractions by their grammar, punctuation character by character.
"""

import random
import re
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import yaml

PAIRS, SEED = 1000, 29
SCORES = ("exact", "contains", "soft_accuracy", "light_soft_accuracy", "anls", "anls_stripped", "ocrbench", "score")
_WORDS = yaml.safe_load(Path(__file__).with_name("words.yaml").read_text(encoding="utf-8"))
GRAMMAR, TEXTS, TWINS = (_WORDS[name] for name in ("grammar", "texts", "twins"))


class Pair(NamedTuple):
    """A question's answer, the accepted ones, its benchmark and OCRBench's type."""

    task: str
    answer: str
    accepted: tuple[str, ...]
    question_type: str


def is_ascii_punctuation(character: str) -> bool:
    return "!" <= character <= "~" and not character.isalnum()


def one_blank_between_words(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def stripped(text: str) -> str:
    return one_blank_between_words("".join(c for c in text.lower() if not is_ascii_punctuation(c)))


def kept_if_all_punctuation(text: str) -> str:
    return stripped(text) if stripped(text) else one_blank_between_words(text.lower())


def is_part(wanted: str, said: str) -> bool:
    """By laying the wanted text over every place; an empty one fits an empty text alone."""
    if wanted == "":
        return said == ""
    return any(said[i : i + len(wanted)] == wanted for i in range(len(said)))


def distance(one: str, other: str) -> int:
    """Levenshtein's distance by its definition."""

    @cache
    def rest(i: int, j: int) -> int:
        if i == len(one) or j == len(other):
            return len(one) - i + len(other) - j
        if one[i] == other[j]:
            return rest(i + 1, j + 1)
        return 1 + min(rest(i + 1, j), rest(i, j + 1), rest(i + 1, j + 1))

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 4 * (len(one) + len(other)) + 1000))
    return rest(0, 0)


def similarity(answer: str, accepted: tuple[str, ...], form: Callable[[str], str]) -> Fraction:
    best = Fraction(0)
    for wanted in accepted:
        one, other = form(answer), form(wanted)
        if one == other:
            return Fraction(1)
        share = Fraction(distance(one, other), max(len(one), len(other)))
        if share < Fraction(1, 2):
            best = max(best, 1 - share)
    return best


def people_agree(answer: str, accepted: tuple[str, ...], form: Callable[[str], str]) -> Fraction:
    """Over all sets of all people but one: min(1, how many of the set gave the answer / 3)."""
    given = [form(each) == form(answer) for each in accepted]
    if len(given) == 1:
        return Fraction(int(given[0]))
    needed = min(3, len(given) - 1)
    sets = list(combinations(given, len(given) - 1))
    return sum((min(Fraction(1), Fraction(sum(others), needed)) for others in sets), Fraction(0)) / len(sets)


@cache
def contraction(word: str) -> str:
    """The word with the apostrophe that it lacks, where one makes it a contraction."""
    if word == "somebody'd":
        return "somebodyd"  # as published
    for ending, stems in GRAMMAR.items():
        for stem in stems.split():
            whole = stem + ending
            apostrophes = [i for i, character in enumerate(whole) if character == "'"]
            if word in (whole[:i] + whole[i + 1 :] for i in apostrophes):
                return whole
    return word


def challenge_words(text: str) -> str:
    """TextVQA's processing, character by character."""
    text = re.sub(r"'s", " 's", re.sub(r"[,?]", "", text.lower()))
    text = re.sub(r"[\n\t]", " ", text).strip()
    written = ""
    for character in text:
        if character in ';/[]"{}()=+\\_-><@`!':
            mark = re.escape(character)
            character = "" if re.search(f"{mark} | {mark}", text) else " "
        written += character
    written = "".join(c for i, c in enumerate(written) if c != "." or written[i + 1 : i + 2] in tuple("0123456789"))
    numbers = "zero one two three four five six seven eight nine ten".split()  # noqa: SIM905
    words = []
    for word in written.split():
        word = "0" if word == "none" else str(numbers.index(word)) if word in numbers else word
        if word not in {"a", "an", "the"}:
            words.append(contraction(word))
    return " ".join(words)


def light_words(text: str) -> str:
    return " ".join(word for word in stripped(text).split() if word not in {"a", "an", "the"})


def ocrbench_line(text: str) -> str:
    return re.sub(r"\n", " ", text.lower().strip())


def ocrbench_formula(text: str) -> str:
    return re.sub(r"[ \n]", "", text.strip())


def independent_scores(pair: Pair) -> dict[str, Fraction]:
    """By name, all of ``SCORES``."""
    answer, accepted = pair.answer, pair.accepted
    of_type = ocrbench_formula if pair.question_type.startswith("Handwritten Math") else ocrbench_line
    found: dict[str, bool | Fraction] = {
        "exact": any(kept_if_all_punctuation(answer) == kept_if_all_punctuation(each) for each in accepted),
        "contains": any(is_part(kept_if_all_punctuation(a), kept_if_all_punctuation(answer)) for a in accepted),
        "soft_accuracy": people_agree(answer, accepted, challenge_words),
        "light_soft_accuracy": people_agree(answer, accepted, light_words),
        "anls": similarity(answer, accepted, lambda text: one_blank_between_words(text.lower())),
        "anls_stripped": similarity(answer, accepted, stripped),
        "ocrbench": any(is_part(of_type(each), of_type(answer)) for each in accepted),
    }
    rule = {"textvqa": "soft_accuracy", "docvqa": "anls", "ocrbench": "ocrbench"}.get(pair.task, "exact")
    return {name: Fraction(value) for name, value in found.items()} | {"score": Fraction(found[rule])}


def generated_pairs() -> list[Pair]:
    """Answers beside accepted ones that differ in what the rules treat: case, punctuation, blanks, words, letters."""
    rng = random.Random(SEED)
    pairs = []
    for _ in range(PAIRS):
        gold = " ".join(rng.choice(TEXTS) for _ in range(rng.choice((1, 1, 1, 2, 3))))
        people = rng.choice((1, 1, 2, 3, 4, 10, 10, 10))
        alike = rng.random()
        accepted = [
            gold if rng.random() < alike else changed(rng, rng.choice((gold, rng.choice(TEXTS)))) for _ in range(people)
        ]
        said = gold if rng.random() < 0.6 else rng.choice((*accepted, rng.choice(TEXTS)))
        for _ in range(rng.choice((0, 0, 1, 1, 2, 4))):
            said = changed(rng, said)
        kind = rng.choice(("", "Digit String Recognition", "Handwritten Mathematical Expression Recognition"))
        pairs.append(Pair(rng.choice(("textvqa", "docvqa", "ocrbench", "qa", "")), said, tuple(accepted), kind))
    return pairs


def changed(rng: random.Random, text: str) -> str:
    """One thing about a text changed that some rule overlooks and another does not."""
    place = rng.randint(0, len(text))
    before, after = text[:place], text[place:]
    return rng.choice(
        (
            text.upper(), text.lower(), text.title(), text.swapcase(), f" {text} ", text.replace(" ", "  "),
            text.replace(" ", "\n"), text.replace(" ", ""), text.replace("'", ""), text.replace(".", ""),
            f"the {text}", f"{text} a", f"{text}.", f'"{text}"', f"{text}'s", f"It is {text}!", text + text,
            *[" ".join(TWINS.get(word.lower(), word) for word in text.split(" "))] * 4, f"an {text}", before, after,
            before + rng.choice(".,;:-/?!()' _@é") + after,
            before + rng.choice("abc012 ") + after[1:], before + after[1:],
        )
    )  # fmt: skip


def agreement(pairs: list[Pair], scores_of: Callable[[Pair], dict[str, float]]) -> dict[str, int]:
    """How many pairs have the same score in both, by name; the same is within 1e-12."""
    agreed = dict.fromkeys(SCORES, 0)
    for pair in pairs:
        ours, theirs = scores_of(pair), independent_scores(pair)
        for name in SCORES:
            agreed[name] += abs(ours[name] - float(theirs[name])) <= 1e-12
    return agreed


def sightline_scores(pair: Pair) -> dict[str, float]:
    from dataclasses import asdict

    from sightline.answering.answer_scores import light_soft_accuracy, score_answer

    scores = asdict(score_answer(pair.task, pair.answer, pair.accepted, pair.question_type))
    return {**scores, "light_soft_accuracy": light_soft_accuracy(pair.answer, pair.accepted)}


if __name__ == "__main__":
    agreed = agreement(generated_pairs(), sightline_scores)
    print(f"{PAIRS:,} pairs: " + ", ".join(f"{name} {count}/{PAIRS}" for name, count in agreed.items()))
