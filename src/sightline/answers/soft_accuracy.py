"""The accuracy of VQA and TextVQA: ten people answered, and an answer is right as far as they gave it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sightline.answers.literal_match import without_punctuation
from sightline.answers.vqa_words import ARTICLES, vqa_words

ENOUGH = 3
"""So many people who gave the answer make it wholly right."""


def soft_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """min(1, people who gave the answer / 3), averaged over leaving each person out; texts as ``vqa_words``.

    With ten answers, as TextVQA has, that is the published score: given by one person it is 0.3, by two 0.6, by three
    0.9, by four 1. Where fewer than four people answered, three others cannot agree: all the others have to, and a
    single accepted answer is right or wrong.
    """
    return _left_one_out(answer, accepted, vqa_words)


def light_soft_accuracy(answer: str, accepted: Sequence[str]) -> float:
    """The same with the lighter processing that the paper's own tables used.

    Lower case, no ASCII punctuation, no articles; number words and contractions stay as they are.
    """
    return _left_one_out(answer, accepted, _light_words)


def _light_words(text: str) -> str:
    return " ".join(word for word in without_punctuation(text).split() if word not in ARTICLES)


def _left_one_out(answer: str, accepted: Sequence[str], form: Callable[[str], str]) -> float:
    """Leaving out one of the ``agree`` who gave the answer leaves one fewer; leaving out another leaves them all."""
    people = len(accepted)
    said = form(answer)
    agree = sum(form(each) == said for each in accepted)
    if people < 2:
        return float(agree)
    enough = min(ENOUGH, people - 1)
    with_one_fewer = min(1.0, (agree - 1) / enough) if agree else 0.0
    return (agree * with_one_fewer + (people - agree) * min(1.0, agree / enough)) / people
