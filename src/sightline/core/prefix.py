"""What the language model reads: an encoded image, a tokenised prompt, and the shortened sequence made of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from sightline.core.selection import QuerySpan
from sightline.geometry.coverage import Sampling

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from sightline.core.span import Separators, SlotPositions


NO_CELLS = "no cells: answers and legibility alone"
"""What a run, its report and doctor say of a model whose image tokens come from no place in the image."""


class Elapsed(Protocol):
    """A time that may not have passed yet: reading it waits for the device."""

    @property
    def ms(self) -> float: ...


@dataclass(frozen=True)
class Encoded:
    """One image after vision tower and projector. Computed once, shared by every probe, arm and budget."""

    tokens: Tensor
    """(N, D) projected visual tokens."""
    deepstack: tuple[Tensor, ...]
    """Features (N, D) added behind the first language layers, one level each, (N, 0) where nothing is; empty for most
    architectures."""
    cells: np.ndarray
    """(N, 4) float64, normalised to the original image; NaN throughout for tokens that come from no place in it."""
    layout: tuple[tuple[int, int], ...]
    """Row-major (rows, columns) blocks that make up the N tokens."""
    sampling: Sampling | None = None
    """How finely the tower read the image; None where the architecture does not say what a token is made from."""
    captured: Mapping[str, Tensor] = field(default_factory=dict)
    """Vision-layer activations that signals are computed from; only what some selector of the run needs."""
    signals: dict[str, tuple[Tensor, Elapsed]] = field(init=False, default_factory=dict, compare=False, repr=False)
    """Signals of this image that some arm has asked for, each with what computing it took; all arms share them."""
    usual_n: int | None = None
    """Tokens of the image at its usual size, where this is the image shown smaller to meet a budget."""
    usual_slots: int | None = None
    """Slots of its span there, separators among them."""
    separators: Separators | None = None
    """Slots between the tokens that come from nowhere in the image; None for most architectures."""
    positions: SlotPositions | None = None
    """The model's own positions of the span's slots; None where the architecture computes them."""
    halved: bool = False
    """Whether memory ran out for the batch that it was to be encoded in."""
    preprocess_ms: float = 0.0
    vision_time: Elapsed | None = None

    @property
    def vision_ms(self) -> float:
        """Its share of the vision tower's time; waits for the device."""
        return 0.0 if self.vision_time is None else self.vision_time.ms

    @property
    def n(self) -> int:
        return int(self.tokens.shape[0])

    @property
    def placed(self) -> bool:
        """Whether its tokens have cells; a model's have all, or none."""
        return bool(self.cells[0, 0] == self.cells[0, 0])

    @property
    def slots(self) -> int:
        """M: places in the sequence that stand for the image, tokens and separators."""
        return self.n + (0 if self.separators is None else len(self.separators.slots))

    @property
    def full_slots(self) -> int:
        """M of the full prefix."""
        return self.slots if self.usual_slots is None else self.usual_slots

    @property
    def full_n(self) -> int:
        """N of the full prefix: what a budget is a share of, whatever size the image is shown at."""
        return self.n if self.usual_n is None else self.usual_n


@dataclass(frozen=True)
class Prompt:
    """The text side of a probe under the model's chat template, as token ids around the image.

    A scorer may attach continuations whose likelihood it wants: each complete sequence is head, image, ``shared``, one
    continuation. Without any, ``shared`` is the prompt's own end.
    """

    head: tuple[int, ...]
    """Ids before the visual tokens."""
    shared: tuple[int, ...]
    """Ids after them that all complete sequences have in common."""
    continuations: tuple[tuple[int, ...], ...]
    """What follows ``shared`` in each of the complete sequences."""
    tail: tuple[int, ...]
    """Ids after the visual tokens of the prompt alone; scored tokens are those at or behind ``len(tail)``."""
    spans: Mapping[QuerySpan, tuple[int, ...]]
    """Indices into ``head + tail`` of the tokens that each query span consists of."""

    def found(self, span: QuerySpan) -> bool | None:
        """Whether a query span stands in the question; False where it is the whole prompt for want of it, None where
        nothing is looked for."""
        if span in ("prompt", "none"):
            return None
        return self.spans[span] is not self.spans["prompt"]  # the same object: a question may be all of a prompt

    @property
    def scored(self) -> tuple[tuple[int, ...], ...]:
        """Per continuation the ids that are scored: what its complete sequence has beyond the prompt."""
        return tuple((*self.shared, *each)[len(self.tail) :] for each in self.continuations)

    @property
    def reads(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Per continuation the slots (behind the visual ones) whose logits predict its scored tokens, and these.

        A token at index i of the complete sequence is predicted at index i - 1. Some of those that the complete
        sequence has beyond the prompt may be shared by all branches.
        """
        shared, lead, reads = len(self.shared), 0, []
        for branch, scored in zip(self.continuations, self.scored, strict=True):
            slots = range(len(self.tail) - 1, shared + len(branch) - 1)
            reads.append((tuple(slot if slot < shared else slot + lead for slot in slots), scored))
            lead += len(branch) - 1
        return tuple(reads)

    def length(self, k: int) -> int:
        """L: slots of the prefix with k for the image. A branch's last token is only predicted, so it has none."""
        return len(self.head) + k + len(self.shared) + sum(len(each) - 1 for each in self.continuations)

    def prompt_length(self, k: int) -> int:
        """Of these, those of the prompt: where an answer changes how its end is tokenised, what all sequences share."""
        return len(self.head) + k + min(len(self.tail), len(self.shared))

    def full_length(self, n: int) -> int:
        """Positions of the prompt alone with all n slots of the image."""
        return len(self.head) + n + len(self.tail)


@dataclass(frozen=True)
class Prefix:
    """The shortened sequence that the language model reads, with a branch behind it for every scored continuation.

    Layout of the L positions: head, K visual tokens (and what separators stay between them), shared text, the inputs of
    each branch in turn.
    """

    embeds: Tensor
    """(L, D)"""
    positions: Tensor
    """(A, L) int64 logical position ids; A = 3 axes for multimodal rotary embeddings, else 1."""
    segments: Tensor
    """(L,) int64: 0 shared, b for the b-th branch, counted from 1. A branch sees the shared part and itself."""
    start: int
    """First slot of the image's span, which occupies ``start .. start + span``."""
    k: int
    """Visual tokens."""
    branch_sizes: tuple[int, ...]
    """Slots that each branch takes at the end of the L."""
    deepstack: tuple[Tensor, ...]
    """Per level (span, D), pruned with the same plan as the tokens."""
    reads: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """Per continuation: offsets behind the last visual slot whose logits are read, and the ids they must predict."""
    prompt_length: int
    """Positions that belong to the prompt (head, visual, prompt text): all that a layer selector may look at."""
    full_length: int
    """Prompt length before pruning."""
    places: Tensor | None = None
    """(K,) int64 on the host: where in the span the visual tokens stand; None where the span is nothing else."""
    separators: int = 0
    """Slots of the span that are no visual tokens."""
    ids: Tensor | None = None
    """(L,) int64 on the host: tokens by their ids, visual ones by that of a placeholder; None where nobody asks."""

    @property
    def span(self) -> int:
        """Slots that stand for the image."""
        return self.k + self.separators

    @property
    def branches(self) -> int:
        """T: slots of all branches together."""
        return sum(self.branch_sizes)
