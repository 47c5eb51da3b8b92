"""An answer in words against the answers that are accepted: every benchmark's own rule.

``score_answer`` gives all scores at once, and among them the one that the question's benchmark goes by. Nothing here
knows an image or a model: a text and a few texts go in.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sightline.answering.field_outcomes import DOCUMENTS, same_value
from sightline.core.text import edit_distance
from sightline.errors import SightlineError

# What a model generated -> the answer in it.

_SPEAKER = re.compile(r"(?:answer|assistant)\s*[:：]\s*", re.IGNORECASE)
_PAIRS = ('""', "''", "``", "“”", "‘’", "„“", "«»")


def cleaned(text: str) -> str:
    """The answer without blanks around it, a leading ``Answer:`` or ``Assistant:``, and quotes that enclose all of it.

    A quote at one end alone stays: 6" is a length.
    """
    answer = text.strip()
    if speaker := _SPEAKER.match(answer):
        answer = answer[speaker.end() :]
    while len(answer) > 1 and answer[0] + answer[-1] in _PAIRS:
        answer = answer[1:-1].strip()
    return answer


# Equal to an accepted answer, or holding one, but for case, punctuation and blanks.

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def without_punctuation(text: str) -> str:
    """Lower case, ASCII punctuation deleted, blanks collapsed; empty for a text of punctuation alone."""
    return " ".join(text.lower().translate(_WITHOUT_PUNCTUATION).split())


def normalised(text: str) -> str:
    """``without_punctuation``, unless nothing but punctuation is there: then that is the text, and "+" is not "-"."""
    return without_punctuation(text) or " ".join(text.lower().split())


def exact(answer: str, accepted: Iterable[str]) -> bool:
    """Whether the answer equals an accepted one, both ``normalised``."""
    return normalised(answer) in {normalised(each) for each in accepted}


def contains(answer: str, accepted: Iterable[str]) -> bool:
    """Whether an accepted answer stands somewhere in the answer, both ``normalised``.

    By characters, not by words: "art" stands in "party". An empty accepted answer stands in an empty answer alone.
    """
    said = normalised(answer)
    return any(each in said if each else not said for each in map(normalised, accepted))


# Average normalised Levenshtein similarity, the score of DocVQA and ST-VQA: small reading errors cost little.

THRESHOLD = 0.5


def anls(answer: str, accepted: Iterable[str]) -> float:
    """As published: case and repeated blanks do not matter, punctuation does.

    Per accepted answer 1 - distance / length of the longer text where that share is below ``THRESHOLD``, else 0; the
    best of them counts. That is the equation of both papers (Biten et al. 2019, Mathew et al. 2021). The challenge's
    script differs from it in one case: at a share of exactly one half it gives 0.5 instead of 0.
    """
    return _best(answer, accepted, lambda text: " ".join(text.lower().split()))


def anls_stripped(answer: str, accepted: Iterable[str]) -> float:
    """The same after all ASCII punctuation is deleted: what the paper's own tables were computed with."""
    return _best(answer, accepted, without_punctuation)


def _best(answer: str, accepted: Iterable[str], form: Callable[[str], str]) -> float:
    said = form(answer)
    return max((_similarity(said, each) for each in {form(each) for each in accepted}), default=0.0)


def _similarity(said: str, wanted: str) -> float:
    longer = max(len(said), len(wanted))
    if longer == 0:
        return 1.0
    if abs(len(said) - len(wanted)) >= THRESHOLD * longer:
        return 0.0  # as many insertions at least: the rest of the distance need not be known
    share = edit_distance(said, wanted) / longer
    return 1.0 - share if share < THRESHOLD else 0.0


# OCRBench's own rule: an accepted answer stands somewhere in what was said.

FORMULAS = ("hme100k", "handwritten mathematical expression recognition")
"""The data set, and the question type, in which blanks do not matter and case does."""


def ocrbench(answer: str, accepted: Iterable[str], question_type: str = "") -> bool:
    """Whether an accepted answer is part of the answer: lower case, stripped, line breaks made blanks.

    Of handwritten mathematical expressions all blanks are removed and case is kept, since x is not X. An empty accepted
    answer, which the published rule would find in everything, stands in an empty answer alone.
    """
    formula = question_type.strip().lower() in FORMULAS

    def form(text: str) -> str:
        line = text.strip().replace("\n", " ")
        return line.replace(" ", "") if formula else line.lower()

    said = form(answer)
    return any(each in said if each else not said for each in map(form, accepted))


# The words of an answer as the VQA and TextVQA challenges compare them.

_NUMBERS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
NUMBER_WORDS = {word: str(number) for number, word in enumerate(_NUMBERS)} | {"none": "0"}
ARTICLES = ("a", "an", "the")

_PUNCTUATION = ';/[]"{}()=+\\_-><@`,?!'
_PERIOD = re.compile(r"\.(?!\d)")
_WITH_APOSTROPHES = """
    ain't aren't can't could've couldn't couldn't've didn't doesn't don't hadn't hadn't've hasn't haven't he'd he'd've
    he's how'd how'll how's isn't it'd it'd've it'll ma'am might've mightn't mightn't've must've mustn't needn't not've
    o'clock oughtn't 'ow's'at shan't she'd've should've shouldn't shouldn't've somebody'd've somebody'll somebody's
    someone'd someone'd've someone'll someone's something'd something'd've something'll that's there'd there'd've
    there're there's they'd they'd've they'll they're they've 'twas wasn't we'd've we've weren't what'll what're what's
    what've when's where'd where's where've who'd who'd've who'll who's who've why'll why're why's won't would've
    wouldn't wouldn't've y'all y'all'd've y'all'll you'd you'd've you'll you're you've
"""


CONTRACTIONS = {
    word[:place] + word[place + 1 :]: word
    for word in _WITH_APOSTROPHES.split()
    for place, character in enumerate(word)
    if character == "'"
} | {"somebody'd": "somebodyd"}
"""Every contraction without one of its apostrophes -> the contraction: the challenges' table where it changes
something; its one entry the wrong way round is kept as published."""


def vqa_words(text: str) -> str:
    """An answer as the TextVQA challenge compares it; two answers are the same if this is.

    In order: lower case; commas and question marks deleted; a possessive 's made a word of its own; other punctuation
    (not apostrophe, colon, period) deleted where it stands beside a blank somewhere in the answer, else replaced by
    one; periods deleted unless a digit follows; number words up to ten made digits; articles dropped; apostrophes put
    into contractions that lack one.
    """
    said = text.lower().replace(",", "").replace("?", "").replace("'s", " 's")
    said = said.replace("\n", " ").replace("\t", " ").strip()
    plain = said
    for mark in _PUNCTUATION:
        beside_a_blank = f"{mark} " in said or f" {mark}" in said
        plain = plain.replace(mark, "" if beside_a_blank else " ")
    words = (NUMBER_WORDS.get(word, word) for word in _PERIOD.sub("", plain).split())
    return " ".join(CONTRACTIONS.get(word, word) for word in words if word not in ARTICLES)


# The accuracy of VQA and TextVQA: ten people answered, and an answer is right as far as they gave it.

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

    def form(text: str) -> str:
        return " ".join(word for word in without_punctuation(text).split() if word not in ARTICLES)

    return _left_one_out(answer, accepted, form)


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


# All scores of one answer, and which of them its benchmark goes by.

TASK_RULES = {"textvqa": "soft_accuracy", "docvqa": "anls", "ocrbench": "ocrbench", DOCUMENTS: "same_value"}
"""Benchmark -> the score that its authors rank by, a field of ``AnswerScores``. Questions from elsewhere: exact. Of
fields of documents the value counts: 60000.0 equals 6000.00 but for punctuation, and is another amount."""
ANY_TASK = "exact"


@dataclass(frozen=True)
class AnswerScores:
    """One answer against its accepted answers; every score is between 0 and 1."""

    exact: bool
    contains: bool
    soft_accuracy: float
    anls: float
    anls_stripped: float
    ocrbench: bool
    same_value: bool
    score: float
    """The one of the question's benchmark."""


def rule_of(task: str) -> str:
    """The score that counts for questions of a benchmark; case does not matter."""
    return TASK_RULES.get(task.lower(), ANY_TASK)


def score_answer(task: str, answer: str, accepted: Sequence[str], question_type: str = "") -> AnswerScores:
    """Every score of a ``cleaned`` answer.

    ``question_type`` is OCRBench's, which treats formulas in another way, or the kind of a field: amounts are numbers.
    """
    if not accepted:
        raise SightlineError("an answer cannot be scored without an accepted answer")
    scores = AnswerScores(
        exact=exact(answer, accepted),
        contains=contains(answer, accepted),
        soft_accuracy=soft_accuracy(answer, accepted),
        anls=anls(answer, accepted),
        anls_stripped=anls_stripped(answer, accepted),
        ocrbench=ocrbench(answer, accepted, question_type),
        same_value=any(same_value(answer, each, question_type) for each in accepted),
        score=math.nan,
    )
    return replace(scores, score=float(getattr(scores, rule_of(task))))
