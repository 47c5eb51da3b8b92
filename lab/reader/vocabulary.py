"""Token ids of the reader. Words are spelled: one token a byte, so that a target has the same ids wherever it stands.

Only whole fixed phrases of the chat template and of the questions are single tokens. None of them can occur inside a
target or an answer: each holds a blank or a line break.
"""

from __future__ import annotations

import re

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
SYSTEM = "You are a helpful assistant."
QUESTION_HEAD = "Does the image contain the exact text "
QUESTION_TAIL = "? Answer yes or no."
PHRASES = ("system\n", "user\n", "assistant\n", SYSTEM, QUESTION_HEAD, QUESTION_TAIL)
ANSWERS = (" yes", " no")

PAD, IM_START, IM_END, VISION_START, VISION_END, _, IMAGE, VIDEO = range(len(SPECIAL))
SYSTEM_ROLE, USER_ROLE, ASSISTANT_ROLE, SYSTEM_TEXT, HEAD, TAIL = range(len(SPECIAL), len(SPECIAL) + len(PHRASES))
YES, NO = range(len(SPECIAL) + len(PHRASES), len(SPECIAL) + len(PHRASES) + 2)
FIRST_BYTE = len(SPECIAL) + len(PHRASES) + len(ANSWERS)
NEWLINE, QUOTE = FIRST_BYTE + ord("\n"), FIRST_BYTE + ord('"')

OPEN_SYSTEM = "You are a helpful OCR assistant. Answer with the shortest correct text only."
OPEN_INSTRUCTION = "\nAnswer the question using a single word or phrase."
OPEN_PHRASES = (
    OPEN_SYSTEM,
    OPEN_INSTRUCTION,
    "What is the text right of ",
    "What is the text left of ",
    "What is the text below ",
    "What is the value beside ",
    "What is the ",
    "Which is larger, the value beside ",
    " or the value beside ",
)
"""Phrases of open questions. Their ids follow those of the bytes: a reader of yes/no questions grows by these rows."""
FIRST_OPEN = FIRST_BYTE + 256
VOCABULARY_SIZE = FIRST_OPEN + len(OPEN_PHRASES)
OPEN_SYSTEM_TEXT, OPEN_TAIL = FIRST_OPEN, FIRST_OPEN + 1
MODELLED_ON = {OPEN_SYSTEM_TEXT: SYSTEM_TEXT, OPEN_TAIL: TAIL}
"""New id -> the old one that stands in its place in a yes/no prompt; all others stand where ``HEAD`` does."""

PREFIX = (IM_START, SYSTEM_ROLE, SYSTEM_TEXT, IM_END, NEWLINE, IM_START, USER_ROLE, VISION_START)
"""Ids before the visual tokens, for a yes/no question."""
OPEN_PREFIX = tuple(OPEN_SYSTEM_TEXT if token == SYSTEM_TEXT else token for token in PREFIX)
"""The same for an open question. Equally long, so that positions are the same."""

_PHRASE_IDS = dict(zip(OPEN_PHRASES, range(FIRST_OPEN, VOCABULARY_SIZE), strict=True))
_LONGEST_PHRASE_FIRST = re.compile("(" + "|".join(map(re.escape, sorted(OPEN_PHRASES, key=len, reverse=True))) + ")")


def spell(text: str) -> list[int]:
    """Ids of a target: its UTF-8 bytes."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def question_ids(target: str) -> list[int]:
    """Ids from the question to the generation prompt: everything between the visual tokens' end and the answer."""
    return [HEAD, QUOTE, *spell(target), QUOTE, TAIL, IM_END, NEWLINE, IM_START, ASSISTANT_ROLE]


def open_ids(text: str) -> list[int]:
    """Ids of an open question or of a part of it: its phrases as tokens, the rest spelled."""
    parts = _LONGEST_PHRASE_FIRST.split(text)
    return [token for part in parts for token in ([_PHRASE_IDS[part]] if part in _PHRASE_IDS else spell(part))]


def open_question_ids(question: str) -> list[int]:
    """What ``question_ids`` is to a yes/no question: the question, the instruction, the generation prompt."""
    return [*open_ids(question), OPEN_TAIL, IM_END, NEWLINE, IM_START, ASSISTANT_ROLE]
