"""The text side of a backbone: a question under the checkpoint's own chat template, and its spans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, chain
from typing import Any, ClassVar

import torch
from torch import Tensor

from sightline.backbones.language import LanguageModel
from sightline.core.prefix import Prompt
from sightline.core.selection import QuerySpan
from sightline.core.span import Separators, SlotPositions
from sightline.device.work import on_device
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells
from sightline.selectors.scores import focus_terms

# Where in the prompt a string stands, as token indices.


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
        sourced = on_device(self.sourced.nonzero()[:, 0], features.device)
        tokens, deepstack = features[sourced], tuple(level[sourced] for level in levels)
        between = self.between
        if not len(between):
            return tokens, deepstack, None
        at, places = (on_device(slots, features.device) for slots in (self.features, between))
        span = embed.to(features.dtype).index_copy(0, at, features)
        spread = [level.new_zeros(len(span), level.shape[1]).index_copy_(0, at, level)[places] for level in levels]
        written = torch.tensor(self.ids)[between]
        return tokens, deepstack, Separators(span[places], between, self.owners, tuple(spread), written)


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


OPEN_INSTRUCTION = "Answer the question using a single word or phrase."
"""What the protocol writes on a line of its own behind an open question."""
PROMPTS = 8192
"""Prompts that are remembered: those of a shard and of the next, which all arms ask for again."""


class Prompting(ABC):
    """What an architecture says about its prompts: the system message, and how a turn and an image are written."""

    model: Any
    tokenizer: Any
    language: LanguageModel

    system: ClassVar[str | None] = None
    """System message that the protocol puts before the question."""
    open_system: ClassVar[str | None] = None
    """The same before a question that is answered in free text; None: the usual one."""

    @property
    @abstractmethod
    def image_token_id(self) -> int: ...

    def user_content(self, question: str) -> Any:
        return [{"type": "image"}, {"type": "text", "text": question}]

    def assistant_content(self, text: str) -> Any:
        return text

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        """The chat template's text: up to the answer (``answer is None``), or with the answer as assistant turn.

        ``in_words``: as the protocol asks for an answer in free text, with its instruction and system message.
        """
        system = (in_words and self.open_system) or self.system
        asked = self.asked(question, in_words=in_words).replace("<image>", "")
        messages: list[dict[str, Any]] = [] if system is None else [{"role": "system", "content": system}]
        messages.append({"role": "user", "content": self.user_content(asked)})
        if answer is not None:
            messages.append({"role": "assistant", "content": self.assistant_content(answer)})
        return self.expand_placeholder(self.apply_template(messages, ask=answer is None))

    @staticmethod
    def asked(question: str, *, in_words: bool) -> str:
        """The question as it is put to the model."""
        return f"{question}\n{OPEN_INSTRUCTION}" if in_words else question

    def apply_template(self, messages: list[dict[str, Any]], *, ask: bool) -> str:
        """The chat template's text of these turns; ``ask``: with the opening of the answer behind them."""
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=ask)
        return text

    def expand_placeholder(self, text: str) -> str:
        """The template's image placeholder as the text that surrounds one visual token."""
        return text

    def _around_image(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        ids = list(self.tokenizer(text).input_ids)
        if ids.count(self.image_token_id) != 1:
            raise SightlineError(
                f"the chat template gives {ids.count(self.image_token_id)} image placeholders where one is needed; "
                "is this the processor's own template?"
            )
        at = ids.index(self.image_token_id)
        return tuple(ids[:at]), tuple(ids[at + 1 :])

    def prompt(
        self, question: str, target: str = "", answers: tuple[str, ...] = (), *, in_words: bool = False
    ) -> Prompt:
        """Tokenises the prompt, and the complete sequence of every answer, once per question and answers.

        ``in_words``: see ``render``. Query spans are those of the question itself, without its instruction.
        """
        return self._prompts(question, target, answers, in_words)

    @cached_property
    def _prompts(self) -> Callable[[str, str, tuple[str, ...], bool], Prompt]:
        """``_tokenised``, with the results asked for last held."""
        return lru_cache(PROMPTS)(self._tokenised)

    def _tokenised(self, question: str, target: str, answers: tuple[str, ...], in_words: bool) -> Prompt:
        head, tail = self._around_image(self.render(question, None, in_words=in_words))
        complete = [self._around_image(self.render(question, answer, in_words=in_words))[1] for answer in answers]
        common = common_length(complete) if complete else len(tail)
        return Prompt(
            head=head,
            shared=complete[0][:common] if complete else tail,
            continuations=tuple(each[common:] for each in complete),
            tail=tail,
            spans=self._spans(head, tail, question, target),
        )

    def _spans(
        self, head: tuple[int, ...], tail: tuple[int, ...], question: str, target: str
    ) -> Mapping[QuerySpan, tuple[int, ...]]:
        """Query spans as indices into head + tail. A target that is not in the question falls back to the whole prompt.

        The template's own words, such as the names of roles, are not searched.
        """
        ids = [*head, self.image_token_id, *tail]
        at = len(head)

        def without_image(span: Sequence[int]) -> tuple[int, ...]:
            return tuple(i if i < at else i - 1 for i in span if i != at)

        everything = tuple(range(len(head) + len(tail)))
        within = sorted(span_by_characters(self.tokenizer, ids, question))
        first, last = (within[0], within[-1] + 1) if within else (0, len(ids))

        def in_question(text: str) -> tuple[int, ...]:
            return without_image([first + i for i in target_span(self.tokenizer, ids[first:last], text)])

        wanted, asked = in_question(target), without_image(within)

        def focus() -> tuple[int, ...]:
            spans = (in_question(term) for term in focus_terms(question))
            return tuple(sorted(set(chain(*spans)) & set(asked))) or asked or everything

        known: dict[QuerySpan, tuple[int, ...]] = {"target": wanted or everything, "prompt": everything, "none": ()}
        known["question"] = asked or everything
        return _Spans(known, focus)

    def query(self, prompt: Prompt, span: QuerySpan) -> Tensor:
        """(T, D) input embeddings of a query span."""
        ids = [*prompt.head, *prompt.tail]
        return self.language.embed([ids[i] for i in prompt.spans[span]])

    @property
    def stop_ids(self) -> frozenset[int]:
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(i for i in (*ids, self.tokenizer.eos_token_id) if i is not None)


class _Spans(dict[QuerySpan, tuple[int, ...]]):
    """Spans by name; the focus is looked for when a method first asks for it, as few do and it costs most."""

    def __init__(self, known: Mapping[QuerySpan, tuple[int, ...]], focus: Callable[[], tuple[int, ...]]) -> None:
        super().__init__(known)
        self._focus = focus

    def __missing__(self, span: QuerySpan) -> tuple[int, ...]:
        if span != "focus":
            raise KeyError(span)
        self[span] = self._focus()
        return self[span]


def common_length(sequences: Sequence[tuple[int, ...]]) -> int:
    """How many leading ids all sequences share, short of the last id of the shortest: each keeps one of its own."""
    common, most = 0, min(map(len, sequences)) - 1
    while common < most and len({each[common] for each in sequences}) == 1:
        common += 1
    return common
