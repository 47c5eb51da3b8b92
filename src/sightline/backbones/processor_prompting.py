"""Prompts of any checkpoint: its chat template, and what its own processor writes where the image stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from PIL import Image
from torch import Tensor

from sightline.backbones.prompting import Prompting
from sightline.backbones.spans import occurrences
from sightline.errors import SightlineError

TEXTS = frozenset(
    {"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets", "labels"}
)
"""What a processor returns about the text."""
SAMPLE = (96, 64)
"""(width, height) of an image that is only there to see what the processor writes for one."""


@dataclass(frozen=True)
class WrittenImage:
    """What a processor writes where an image stands."""

    text: str
    ids: tuple[int, ...]
    """From its first to its last token that is no ordinary text: that alone does not depend on what stands around."""


class ProcessorPrompting(Prompting):
    """The text side of a checkpoint with a processor of its own."""

    processor: Any

    @property
    def placeholder(self) -> str:
        """What stands for an image in a text before the processor sees it."""
        found = getattr(self.processor, "image_placeholder_token", None) or getattr(self.processor, "image_token", None)
        if found is None:
            raise SightlineError(f"{type(self.processor).__name__} does not say what stands for an image in a text")
        return str(found)

    def render(self, question: str, answer: str | None, *, in_words: bool = False) -> str:
        if self.processor.chat_template is not None:
            return super().render(question, answer, in_words=in_words)
        return self.plain_prompt(self.asked(question, in_words=in_words)) + (answer or "")

    def plain_prompt(self, question: str) -> str:
        """A prompt of a checkpoint that has no chat template."""
        return f"{self.placeholder}{question}\n"

    def processor_text(self, question: str) -> str:
        """What the processor is handed to write the prompt of a question: all of it, where it adds nothing."""
        return self.render(question, None)

    def user_content(self, question: str) -> Any:
        if self._takes_parts:
            return super().user_content(question)
        return f"{self.placeholder}\n{question}"

    def assistant_content(self, text: str) -> Any:
        return [{"type": "text", "text": text}] if self._answers_in_parts else text

    def apply_template(self, messages: list[dict[str, Any]], *, ask: bool) -> str:
        text: str = self.tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=ask, chat_template=self.processor.chat_template
        )
        return text

    @cached_property
    def _takes_parts(self) -> bool:
        """Whether the template wants a turn as a list of parts, the image one of them."""
        parts = [{"type": "image"}, {"type": "text", "text": "word"}]
        return self._written([{"role": "user", "content": parts}], self.placeholder, "word")

    @cached_property
    def _answers_in_parts(self) -> bool:
        turn = {"role": "user", "content": self.user_content("word")}
        return not self._written([turn, {"role": "assistant", "content": "answer"}], "answer")

    def _written(self, messages: list[dict[str, Any]], *wanted: str) -> bool:
        """Whether the template makes these messages a text in which every wanted one stands once."""
        try:
            text = self.apply_template(messages, ask=False)
        except Exception:  # a template is a program of somebody else
            return False
        return all(text.count(each) == 1 for each in wanted)

    def token_ids(self, text: str) -> list[int]:
        """As the processor itself calls the tokenizer: a text that begins with the first token gets no second one."""
        first = self.tokenizer.bos_token
        doubled = first is not None and text.startswith(first)
        return list(self.tokenizer(text, add_special_tokens=not doubled).input_ids)

    def _around_image(self, text: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        if text.count(self.placeholder) != 1:
            raise SightlineError(
                f"the chat template gives {text.count(self.placeholder)} image placeholders where one is needed; "
                "is this the processor's own template?"
            )
        sample = self._sample
        ids = self.token_ids(text.replace(self.placeholder, sample.text))
        found = occurrences(ids, sample.ids)
        if len(found) != 1:
            raise SightlineError("what the processor writes for an image is not found again in its prompt")
        at = found[0]
        return tuple(ids[:at]), tuple(ids[at + len(sample.ids) :])

    @cached_property
    def _sample(self) -> WrittenImage:
        return self.written(self.processed(Image.new("RGB", SAMPLE, (255, 255, 255))))

    def processed(self, image: Image.Image) -> Any:
        """What the processor makes of an image and its bare placeholder."""
        try:
            return self.processor(
                text=[self.placeholder],
                images=[image],
                return_tensors="pt",
                text_kwargs={"return_text_replacement_offsets": True},
                images_kwargs=self.processor_arguments(),
            )
        except (ValueError, StopIteration) as error:
            said = str(error).strip().splitlines() or ["it says no more"]
            raise SightlineError(
                f"{type(self.processor).__name__} cannot expand a bare placeholder: {said[0]}"
            ) from error

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def written(self, processed: Any) -> WrittenImage:
        ids = processed["input_ids"][0].tolist()
        text = self._replacement(processed) or self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return WrittenImage(text, self._marked(self.tokenizer(text, add_special_tokens=False).input_ids))

    @staticmethod
    def _replacement(processed: Any) -> str | None:
        offsets = processed.get("text_replacement_offsets") or [[]]
        return next((str(each["replacement"]) for each in offsets[0] if each["type"] == "image"), None)

    def _marked(self, ids: Sequence[int]) -> tuple[int, ...]:
        """From the first to the last id of a token that was added to the vocabulary for its meaning."""
        added = self.tokenizer.added_tokens_decoder
        marks = [index for index, token in enumerate(ids) if token in added]
        if not marks:
            raise SightlineError(f"{type(self.processor).__name__} writes ordinary text where the image stands")
        return tuple(ids[marks[0] : marks[-1] + 1])


def image_inputs(processed: Any) -> dict[str, Tensor]:
    """What a processor says about the image alone."""
    return {name: value for name, value in processed.items() if name not in TEXTS and isinstance(value, Tensor)}
