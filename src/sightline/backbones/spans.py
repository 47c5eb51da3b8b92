"""Where in the prompt a string stands, as token indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def occurrences(ids: Sequence[int], pattern: Sequence[int]) -> list[int]:
    """Start of every occurrence of ``pattern`` in ``ids``."""
    width = len(pattern)
    if width == 0:
        return []
    return [i for i in range(len(ids) - width + 1) if list(ids[i : i + width]) == list(pattern)]


def span_by_ids(tokenizer: Any, ids: Sequence[int], text: str) -> set[int]:
    """Every occurrence of the first encoding of ``text`` that occurs at all.

    A word tokenises differently alone, after a space and inside quotes; the forms are tried in that order and only
    the first that matches counts, with all its tokens (quotes included).
    """
    for form in dict.fromkeys((text, f" {text}", f'"{text}"', f" '{text}'")):
        pattern = tokenizer(form, add_special_tokens=False).input_ids
        starts = occurrences(ids, pattern)
        if starts:
            return {start + offset for start in starts for offset in range(len(pattern))}
    return set()


def span_by_characters(tokenizer: Any, ids: Sequence[int], text: str) -> set[int]:
    """Tokens whose characters overlap the first occurrence of ``text``, exact first, then ignoring case."""
    pieces = [tokenizer.decode([token], skip_special_tokens=False, clean_up_tokenization_spaces=False) for token in ids]
    whole = "".join(pieces)
    begin = whole.find(text)
    if begin < 0:
        begin = whole.casefold().find(text.casefold())
    if begin < 0 or not text:
        return set()
    end = begin + len(text)
    span, cursor = set(), 0
    for index, piece in enumerate(pieces):
        if cursor < end and cursor + len(piece) > begin:
            span.add(index)
        cursor += len(piece)
    return span


def target_span(tokenizer: Any, ids: Sequence[int], text: str) -> tuple[int, ...]:
    """Indices of the queried string in the prompt; empty when it cannot be found."""
    text = text.strip()
    if not text:
        return ()
    return tuple(sorted(span_by_ids(tokenizer, ids, text) or span_by_characters(tokenizer, ids, text)))
