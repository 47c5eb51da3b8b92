"""What a model generated -> the answer in it."""

from __future__ import annotations

import re

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
