"""Answers in words against the accepted ones: every score that rows of the scorer ``open`` hold, averaged.

What each score means is defined in ``sightline.answering.answer_scores``.
"""

from __future__ import annotations

from sightline.statistics.arm_rows import ArmRows, FloatArray
from sightline.statistics.metrics.base import UNIT, metric


@metric(
    "score",
    "Score",
    "mean score of answers in words, each by the rule of its benchmark",
    better="higher",
    needs=("score",),
    shown_in=("main", "terminal", "differences", "seeds", "interventions", "leaderboard"),
    place=90,
    answers="words",
    limits=UNIT,
)
def score(rows: ArmRows) -> FloatArray:
    return rows.columns["score"]


@metric(
    "exact",
    "Exact",
    "share of answers equal to an accepted one but for case, punctuation and blanks",
    better="higher",
    needs=("exact",),
    binary=True,
    shown_in=("main", "differences"),
    place=150,
    answers="words",
    aliases=("exact_match",),
)
def exact(rows: ArmRows) -> FloatArray:
    return rows.columns["exact"]


@metric(
    "contains",
    "Contains",
    "share of answers that hold an accepted one but for case, punctuation and blanks",
    better="higher",
    needs=("contains",),
    binary=True,
    shown_in=(),
    place=151,
    answers="words",
)
def contains(rows: ArmRows) -> FloatArray:
    return rows.columns["contains"]


@metric(
    "soft_accuracy",
    "Soft accuracy",
    "TextVQA's accuracy: min(1, people who gave the answer / 3), each person left out once",
    better="higher",
    needs=("soft_accuracy",),
    shown_in=(),
    place=152,
    answers="words",
    aliases=("vqa_accuracy", "textvqa_accuracy"),
    limits=UNIT,
)
def soft_accuracy(rows: ArmRows) -> FloatArray:
    return rows.columns["soft_accuracy"]


@metric(
    "anls",
    "ANLS",
    "mean normalised Levenshtein similarity to the nearest accepted answer, 0 below one half",
    better="higher",
    needs=("anls",),
    shown_in=(),
    place=153,
    answers="words",
    limits=UNIT,
)
def anls(rows: ArmRows) -> FloatArray:
    return rows.columns["anls"]


@metric(
    "anls_stripped",
    "ANLS, stripped",
    "ANLS after punctuation is deleted",
    better="higher",
    needs=("anls_stripped",),
    shown_in=(),
    place=154,
    answers="words",
    limits=UNIT,
)
def anls_stripped(rows: ArmRows) -> FloatArray:
    return rows.columns["anls_stripped"]


@metric(
    "ocrbench",
    "OCRBench",
    "share of answers that hold an accepted one, by OCRBench's own rule",
    better="higher",
    needs=("ocrbench",),
    binary=True,
    shown_in=(),
    place=155,
    answers="words",
)
def ocrbench(rows: ArmRows) -> FloatArray:
    return rows.columns["ocrbench"]


@metric(
    "answer_loss",
    "Answer loss",
    "mean negative log-likelihood per generated token, in nats: how sure the model was of what it said, right or not",
    better="neither",
    needs=("answer_loss",),
    shown_in=(),
    place=330,
    answers="words",
)
def answer_loss(rows: ArmRows) -> FloatArray:
    return rows.columns["answer_loss"]
