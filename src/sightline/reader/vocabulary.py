"""Token ids of the reader. Words are spelled: one token a byte, so that a target has the same ids wherever it stands.

Only whole fixed phrases of the chat template and of the question are single tokens. None of them can occur inside a
target: each holds a blank or a line break.
"""

from __future__ import annotations

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
VOCABULARY_SIZE = FIRST_BYTE + 256
NEWLINE, QUOTE = FIRST_BYTE + ord("\n"), FIRST_BYTE + ord('"')

PREFIX = (IM_START, SYSTEM_ROLE, SYSTEM_TEXT, IM_END, NEWLINE, IM_START, USER_ROLE, VISION_START)
"""Ids before the visual tokens."""


def spell(text: str) -> list[int]:
    """Ids of a target: its UTF-8 bytes."""
    return [FIRST_BYTE + byte for byte in text.encode()]


def question_ids(target: str) -> list[int]:
    """Ids from the question to the generation prompt: everything between the visual tokens' end and the answer."""
    return [HEAD, QUOTE, *spell(target), QUOTE, TAIL, IM_END, NEWLINE, IM_START, ASSISTANT_ROLE]
