"""The contract that an architecture fulfils. What all architectures share is built on it, in files of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones import images, pretrained
from sightline.backbones.language import LanguageModel
from sightline.backbones.normalising import Normaliser, processor_table
from sightline.backbones.options import ImageOptions
from sightline.backbones.pixels import Grid, Pixels
from sightline.backbones.signals import split_name
from sightline.backbones.spans import span_by_characters, target_span
from sightline.backbones.tower import Block, Tower, call_block
from sightline.core.prefix import Encoded, PositionPolicy, Prompt
from sightline.core.registry import Registry
from sightline.core.selection import QuerySpan
from sightline.device.memory import Limit
from sightline.errors import SightlineError

BACKBONES: Registry[type[Backbone]] = Registry(
    "architecture", group="sightline.backbones", package="sightline.backbones"
)
"""Architectures by the ``model_type`` of their ``config.json``: in this package, or behind another's entry point."""


class Backbone(ABC):
    """One architecture: picture and question in, visual tokens with their cells and a language model out.

    A backbone owns geometry: the token-to-cell map, checked against the real number of visual tokens, and the logical
    positions under both policies. It never patches classes and leaves no hooks behind.
    """

    model_class: ClassVar[str]
    """Class of transformers that holds the checkpoint."""
    image_processor_class: ClassVar[str]
    """PIL image processor of transformers (the plain one: no torchvision needed)."""
    image_options: ClassVar[type[ImageOptions]] = ImageOptions
    """What can be chosen about its images, on the command line with ``--image-option NAME=VALUE``."""
    axes: ClassVar[int] = 1
    """Rotary position axes: 3 for multimodal rotary embeddings."""
    packs_pictures: ClassVar[bool] = False
    """Whether the tower lines up the patches of all pictures of a batch in one sequence."""
    class_tokens: ClassVar[int] = 1
    """Tokens that the vision tower puts before the patches of every tile."""
    processor_steps: ClassVar[tuple[str, ...]] = ("do_resize", "do_rescale", "do_normalize")
    """What the image processor must be set to do: ``pixel_pipeline`` always does it."""
    system: ClassVar[str | None] = None
    """System message that the protocol puts before the question."""
    paper_positions: ClassVar[PositionPolicy] = "compact"
    """Position policy of the paper's main rows for this architecture."""

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, options: ImageOptions) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.options = options
        self.language = LanguageModel(model.model.language_model, model.lm_head, self.axes)
        self.call_block: Block = call_block
        """How a vision block is called; see ``sightline.backbones.vision_execution``."""
        self.patch_products = False
        """Whether patches are embedded by a matrix product instead of the model's convolution; equal up to rounding."""
        self.encoded_images = 0
        """How many pictures went through the vision tower; an audit encodes each distinct picture once."""
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        """What memory has been seen to hold of pictures being encoded, selected from, and read by the layers."""
        self._prompts: dict[tuple[str, str], Prompt] = {}
        self.normalisers: dict[torch.device, Normaliser] = {}
        pretrained.refuse_unsupported(model.config, image_processor, self.processor_steps)

    # ------------------------------------------------------------------ pictures

    @abstractmethod
    def patch_grid(self, height: int, width: int) -> tuple[int, int, int]:
        """Tiles of a picture of this size, and rows and columns of patches in each."""

    @abstractmethod
    def pixel_pipeline(self, height: int, width: int, device: torch.device) -> Callable[[Tensor], Tensor]:
        """A function from the (H, W, 3) bytes of a picture of this size to the image processor's pixel values.

        Values are float32 and equal to the processor's to the bit. Tables are made here; the function only runs
        tensor operations of fixed shapes on ``device``, never waits for it, and so can be captured as a graph.
        """

    @abstractmethod
    def tower(self, grids: Sequence[Grid]) -> Tower:
        """The vision tower for a batch of pictures with these patch grids."""

    @abstractmethod
    def cells_of(self, pixels: Pixels) -> tuple[np.ndarray, tuple[tuple[int, int], ...]]:
        """(N, 4) cells of a picture's tokens, and the rows and columns of each grid of tokens."""

    def captured(self, tower: Tower, states: Mapping[int, Tensor]) -> dict[str, Tensor]:
        """What signals are read from, one row per patch: kept hidden states, and tables if attention needs them."""
        return {f"hidden:{index}": rows for index, rows in states.items()}

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    def edited(self, image: Image.Image) -> Image.Image:
        """The picture after whatever the image options do to it before the processor's own steps."""
        return image

    def byte_values(self) -> Tensor:
        """(3, 256) float32 normalised value of each byte in each channel."""
        return processor_table(self.image_processor)

    preprocess = images.preprocess
    picture_bytes = images.picture_bytes
    pixel_values = images.pixel_values
    preparing = images.preparing
    normaliser = images.normaliser
    tower_inputs = images.tower_inputs
    encode = images.encode
    vision = images.vision
    seen = images.seen

    # ------------------------------------------------------------------ signals

    @property
    @abstractmethod
    def vision_blocks(self) -> Any:
        """The transformer blocks of the vision tower."""

    @property
    def vision_depth(self) -> int:
        """How many of the blocks a picture's tokens depend on."""
        return len(self.vision_blocks)

    def serves(self, name: str) -> str | None:
        """None when this architecture can compute the signal, else the reason why not."""
        kind, _ = split_name(name)
        return None if kind.startswith("lm.") else f"{type(self).__name__} has no signal {kind}"

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        """A ``vision.*`` signal of one encoded picture."""
        raise SightlineError(f"{type(self).__name__} has no signal {name}")

    def clip_states(self, encoded: Encoded) -> Tensor:
        """(N, C) penultimate patch states after the tower's final layer norm, for CLIP's visual projection."""
        raise SightlineError(f"{type(self).__name__} has no CLIP tower")

    def merge_sources(self, encoded: Encoded) -> Tensor:
        """(N + 1, C) vision hidden states that methods merge before projection, the class token last."""
        raise SightlineError(f"{type(self).__name__} cannot merge vision states before projection")

    def project(self, hidden: Tensor) -> Tensor:
        """(K, C) vision hidden states as (K, D) language tokens."""
        raise SightlineError(f"{type(self).__name__} cannot project single vision states")

    def synchronise(self) -> None:
        if self.language.device.type == "cuda":
            torch.cuda.synchronize(self.language.device)

    # ------------------------------------------------------------------ positions

    @abstractmethod
    def visual_positions(
        self, encoded: Encoded, anchors: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """(A, K) logical ids of the kept tokens behind ``start`` text tokens, and the id of the next text token.

        That id is a tensor () where it depends on which tokens were kept: nothing here may wait for the device.
        """

    # ------------------------------------------------------------------ prompts

    @property
    @abstractmethod
    def image_token_id(self) -> int: ...

    def user_content(self, question: str) -> Any:
        return [{"type": "image"}, {"type": "text", "text": question}]

    def assistant_content(self, text: str) -> Any:
        return text

    def _messages(self, question: str) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = []
        if self.system is not None:
            messages.append({"role": "system", "content": self.system})
        messages.append({"role": "user", "content": self.user_content(question.replace("<image>", ""))})
        return messages

    def render(self, question: str, answer: str | None) -> str:
        """The chat template's text: up to the answer (``answer is None``), or with the answer as assistant turn."""
        messages = self._messages(question)
        if answer is not None:
            messages.append({"role": "assistant", "content": self.assistant_content(answer)})
        text: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=answer is None)
        return self.expand_placeholder(text)

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

    def prompt(self, question: str, target: str = "", answers: tuple[str, str] = (" yes", " no")) -> Prompt:
        """Tokenises prompt and both complete sequences once per question."""
        key = (question, target)
        if key not in self._prompts:
            head, tail = self._around_image(self.render(question, None))
            (_, yes), (_, no) = (self._around_image(self.render(question, answer)) for answer in answers)
            common = 0
            while common < min(len(yes), len(no)) - 1 and yes[common] == no[common]:
                common += 1
            self._prompts[key] = Prompt(
                head=head,
                shared=yes[:common],
                yes=yes[common:],
                no=no[common:],
                tail=tail,
                spans=self._spans(head, tail, question, target),
            )
        return self._prompts[key]

    def _spans(
        self, head: tuple[int, ...], tail: tuple[int, ...], question: str, target: str
    ) -> dict[QuerySpan, tuple[int, ...]]:
        """Query spans as indices into head + tail. An unfindable target falls back to the whole prompt."""
        ids = [*head, self.image_token_id, *tail]
        at = len(head)

        def without_image(span: Sequence[int]) -> tuple[int, ...]:
            return tuple(i if i < at else i - 1 for i in span if i != at)

        everything = tuple(range(len(head) + len(tail)))
        wanted = without_image(target_span(self.tokenizer, ids, target))
        asked = without_image(sorted(span_by_characters(self.tokenizer, ids, question)))
        return {"target": wanted or everything, "prompt": everything, "question": asked or everything, "none": ()}

    def query(self, prompt: Prompt, span: QuerySpan) -> Tensor:
        """(T, D) input embeddings of a query span."""
        ids = [*prompt.head, *prompt.tail]
        return self.language.embed([ids[i] for i in prompt.spans[span]])

    @property
    def stop_ids(self) -> frozenset[int]:
        configured = getattr(self.model.generation_config, "eos_token_id", None)
        ids = configured if isinstance(configured, list) else [configured]
        return frozenset(i for i in (*ids, self.tokenizer.eos_token_id) if i is not None)

    # ------------------------------------------------------------------ loading

    load = classmethod(pretrained.load)
