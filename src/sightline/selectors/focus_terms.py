"""The words of an open question that say what to look for."""

from __future__ import annotations

import re

MOST_TERMS = 8
WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
STOP_WORDS = frozenset(
    """a an and answer are associated at be been being called can could did displayed do document does for from given
    had has have he her hers him his how image in is it may me mentioned might mine my of on or our ours photo picture
    please read reads say says she should shown single that the their theirs them these they this those to using was
    were what when where which who why with word words would written you your yours""".split()  # noqa: SIM905 - a paragraph of words reads better than ninety quoted strings
)


def focus_terms(question: str) -> list[str]:
    """Up to eight words in their own spelling and order; the stripped question itself if no word qualifies.

    Words are runs of letters and digits, joined by inner hyphens or apostrophes. Stop words, repetitions (both without
    regard to case) and single characters other than digits are left out.
    """
    terms: dict[str, str] = {}
    for word in WORD.findall(question):
        key = word.casefold()
        if key not in STOP_WORDS and (len(word) > 1 or word.isdigit()):
            terms.setdefault(key, word)
    return list(terms.values())[:MOST_TERMS] or [question.strip()]
