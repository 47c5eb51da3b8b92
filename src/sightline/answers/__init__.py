"""An answer in words against the answers that are accepted: every benchmark's own rule, one idea a file.

``score_answer`` gives all scores at once, and among them the one that the question's benchmark goes by. Nothing here
knows an image or a model: a text and a few texts go in.
"""

from sightline.answers.scoring import (
    TASK_RULES,
    AnswerScores,
    anls,
    anls_stripped,
    cleaned,
    contains,
    exact,
    light_soft_accuracy,
    normalised,
    ocrbench,
    rule_of,
    score_answer,
    soft_accuracy,
    vqa_words,
)

__all__ = [
    "TASK_RULES",
    "AnswerScores",
    "anls",
    "anls_stripped",
    "cleaned",
    "contains",
    "exact",
    "light_soft_accuracy",
    "normalised",
    "ocrbench",
    "rule_of",
    "score_answer",
    "soft_accuracy",
    "vqa_words",
]
