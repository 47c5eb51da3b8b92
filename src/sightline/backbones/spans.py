"""Where in the prompt a string stands, as token indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from sightline.core.span import Separators, SlotPositions
from sightline.geometry.cells import Cells


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


# How the span of an image of one size is made up: which slots are tokens, which separators, and whose these are.

Layout = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SpanPlan:
    """M slots; P of them are placeholders that the image's features take, N of which have a source."""

    ids: tuple[int, ...]
    """(M,) what the processor writes for the image."""
    features: Tensor
    """(P,) int64: slots of the placeholders."""
    sourced: Tensor
    """(P,) bool: features that come from somewhere in the image, the N visual tokens."""
    cells: Cells
    """(N, 4)"""
    layout: Layout
    owners: Tensor
    """(S, 2) int64: of every separator the stretch of tokens that it belongs to."""
    positions: SlotPositions

    @property
    def slots(self) -> int:
        return len(self.ids)

    @property
    def n(self) -> int:
        return len(self.cells)

    @property
    def between(self) -> Tensor:
        """(S,) int64: slots of the separators, text or features without a source."""
        return is_separator(self.slots, self.features, self.sourced).nonzero()[:, 0]

    def split(
        self, features: Tensor, levels: tuple[Tensor, ...], embed: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...], Separators | None]:
        """(P, D) features and DeepStack levels as tokens (N, D), their levels, and separators.

        ``embed`` (M, D) are the embeddings of ``ids``, which text between the features is read by.
        """
        sourced = self.sourced.to(features.device)
        tokens, deepstack = features[sourced], tuple(level[sourced] for level in levels)
        between = self.between
        if not len(between):
            return tokens, deepstack, None
        at, places = self.features.to(features.device), between.to(features.device)
        span = embed.to(features.dtype).index_copy(0, at, features)
        spread = [torch.zeros_like(span).index_copy_(0, at, level)[places] for level in levels]
        return tokens, deepstack, Separators(span[places], between, self.owners, tuple(spread))


def is_separator(slots: int, features: Tensor, sourced: Tensor) -> Tensor:
    """(M,) bool"""
    separator = torch.ones(slots, dtype=torch.bool)
    separator[features[sourced]] = False
    return separator


def owners(slots: int, features: Tensor, sourced: Tensor, layout: Layout) -> Tensor:
    """(S, 2) int64: the stretch of tokens that each separator belongs to.

    What ends a row within a grid belongs to that row. Text between two grids announces the next one, unless rows end
    in the same way: then its first slot still ends the row before it. Text before the first grid belongs to that grid
    if grids are announced at all, and else, like whatever follows the last one, to the whole image. A feature without
    a source behind the last token ends the last row.
    """
    separator = is_separator(slots, features, sourced)
    n = int(sourced.sum())
    row_ends, block_ends = _ends(layout, n)
    before = torch.cumsum(~separator, 0)  # tokens up to and including a slot
    is_feature = torch.zeros(slots, dtype=torch.bool)
    is_feature[features] = True
    places = separator.nonzero()[:, 0].tolist()
    inner = {int(before[slot]) for slot in places} - {0, n}
    starts, ends = [0, *block_ends[:-1]], block_ends
    announced = any(at in inner for at in block_ends[:-1]) and not _rows_end(inner, block_ends, row_ends)
    found, seen = [], set[int]()
    for slot in places:
        at = int(before[slot])
        first_of_stretch = at not in seen
        seen.add(at)
        row = (max([0, *(end for end in row_ends if end < at)]), at)
        if at == 0:
            found.append((0, ends[0]) if announced else (0, n))
        elif at == n:
            found.append(row if is_feature[slot] else (0, n))
        elif at not in block_ends:
            found.append(row)
        else:
            index = block_ends.index(at)
            ends_row = first_of_stretch and _rows_end(inner, ends[index : index + 1], row_ends, starts[index])
            found.append(row if ends_row or is_feature[slot] else (starts[index + 1], ends[index + 1]))
    return torch.tensor(found, dtype=torch.long).reshape(-1, 2)


def _ends(layout: Layout, n: int) -> tuple[list[int], list[int]]:
    """Tokens up to the end of every row, and of every block."""
    rows = list(accumulate(columns for rows, columns in layout for _ in range(rows)))
    blocks = list(accumulate(rows * columns for rows, columns in layout))
    assert not blocks or blocks[-1] == n
    return rows, blocks


def _rows_end(inner: set[int], blocks: list[int], rows: list[int], start: int = 0) -> bool:
    """Whether something stands behind a row that does not end a block."""
    return any(end in inner for end in rows if start < end <= blocks[-1] and end not in blocks)
