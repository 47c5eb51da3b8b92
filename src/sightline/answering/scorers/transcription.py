"""A page written down by the model, against the page's own texts in reading order: what was read, and where.

The question of optical compression: how many characters of a page survive per visual token that is kept. Give answers
room (``--longest-answer``): a page has hundreds of tokens, and one that was cut off there is marked.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.answering.field_outcomes import page_texts, plain
from sightline.answering.scorers.base import SCORERS, Launched
from sightline.answering.scorers.spoken import SPOKEN_COLUMNS, SpokenScorer, Utterance
from sightline.core.prefix import Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.row import Column
from sightline.core.text import edit_distance

if TYPE_CHECKING:
    from sightline.backbones.base import Backbone
    from sightline.backbones.batches import Cutter

READ = 0.9
"""The share of a page's characters from which on it counts as read."""


def words_of(text: str) -> list[str]:
    """Words as they are compared, each by itself: a page's texts and one long answer are split at the same places."""
    return [plain(word) for word in text.split()]


def word_errors(reference: Sequence[str], written: Sequence[str]) -> float:
    """Word error rate: edit distance over words / words of the reference; every distinct word is one character."""
    letters = {word: chr(0xF0000 + index) for index, word in enumerate(dict.fromkeys([*reference, *written]))}
    spelled = ["".join(letters[word] for word in words) for words in (reference, written)]
    return edit_distance(*spelled) / max(1, len(reference))


def hits_by_text(texts: Sequence[str], written: Sequence[str]) -> list[float]:
    """Of each text the share of its words that the model wrote in this order, by the longest common blocks."""
    words = [words_of(text) for text in texts]
    flat = [word for text in words for word in text]
    found = [False] * len(flat)
    for block in difflib.SequenceMatcher(None, flat, list(written), autojunk=False).get_matching_blocks():
        found[block.a : block.a + block.size] = [True] * block.size
    shares, start = [], 0
    for text in words:
        hit = found[start : start + len(text)]
        shares.append(sum(hit) / len(hit) if hit else 1.0)
        start += len(text)
    return shares


@SCORERS.register("transcription")
class Transcription(SpokenScorer):
    """The text of a page as the model writes it, in reading order; scored by its character and word errors."""

    name: ClassVar[str] = "transcription"
    open_questions: ClassVar[bool] = True
    columns: ClassVar[tuple[Column, ...]] = (
        Column("task", "string", "What the page is from."),
        *SPOKEN_COLUMNS,
        Column("score", "float64", "1 - character_errors, at least 0. correct: at least 0.9."),
        Column("character_errors", "float64", "Edit distance to the page's text / its characters; may exceed 1."),
        Column("word_errors", "float64", "The same over words."),
        Column("words_found", "float64", "Share of the page's words that were written, in their order."),
        Column("text_hits", "list<float64>", "The same for each text of the page (extra.page of the probe)."),
        Column("text_tokens", "int32", "Tokens of the page's text under the model's own tokenizer."),
    )
    metrics: ClassVar[tuple[str, ...]] = ("accuracy",)

    def __init__(self, max_new_tokens: int = 1024) -> None:
        super().__init__(max_new_tokens)
        self.tokenizer: Any = None
        """Of the model; None where an engine has none on this machine."""

    def prompt(self, backbone: Backbone, probe: Probe) -> Prompt:
        return backbone.prompt(probe.question, probe.target_text or probe.question)

    def launch(self, backbone: Backbone, prefixes: Sequence[Prefix], cutter: Cutter | None) -> Launched:
        self.tokenizer = backbone.tokenizer
        return super().launch(backbone, prefixes, cutter)

    def judge(self, probe: Probe, result: Utterance, arm: str) -> dict[str, Any]:
        page = page_texts(probe.extra.get("page"))
        texts = [each.text for each in page] if page else list(probe.answers[:1])
        lengths = [len(text.split()) for text in texts]
        reference, written = [word for text in texts for word in words_of(text)], words_of(result.text)
        hits = hits_by_text(texts, written)
        errors = edit_distance(" ".join(reference), " ".join(written)) / max(1, len(" ".join(reference)))
        return {
            "predicted": result.text,
            "correct": 1.0 - errors >= READ,
            "task": probe.task,
            **result.as_columns(result.text),
            "score": max(0.0, 1.0 - errors),
            "character_errors": errors,
            "word_errors": word_errors(reference, written),
            "words_found": sum(h * n for h, n in zip(hits, lengths, strict=True)) / max(1, sum(lengths)),
            "text_hits": hits,
            "text_tokens": None if self.tokenizer is None else len(self.tokenizer(" ".join(texts)).input_ids),
        }
