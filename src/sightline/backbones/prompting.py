"""The text side of a backbone: a question under the checkpoint's own chat template, and its spans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, ClassVar

from torch import Tensor

from sightline.backbones.language import LanguageModel
from sightline.backbones.spans import span_by_characters, target_span
from sightline.core.prefix import Prompt
from sightline.core.recent import Recent
from sightline.core.selection import QuerySpan
from sightline.errors import SightlineError
from sightline.selectors.scores import focus_terms

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

    def _messages(self, question: str, system: str | None) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if system is not None:
            messages.append({"role": "system", "content": system})
        messages.append({"role": "user", "content": self.user_content(question.replace("<image>", ""))})
        return messages

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        """The chat template's text: up to the answer (``answer is None``), or with the answer as assistant turn.

        ``in_words``: as the protocol asks for an answer in free text, with its instruction and system message.
        """
        system = (in_words and self.open_system) or self.system
        messages = self._messages(self.asked(question, in_words=in_words), system)
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

        def tokenised() -> Prompt:
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

        return self._prompts.get((question, target, answers, in_words), tokenised)

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

    @cached_property
    def _prompts(self) -> Recent[tuple[str, str, tuple[str, ...], bool], Prompt]:
        return Recent(PROMPTS)


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
