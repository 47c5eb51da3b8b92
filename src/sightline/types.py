"""The frozen records handed from step to step: probe -> encoded -> view -> selection -> row.

Boxes are ``(x1, y1, x2, y2)`` in fractions of the image, x to the right and y down, everywhere in Sightline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

Box = tuple[float, float, float, float]
Label = Literal["yes", "no"]
QuerySpan = Literal["target", "prompt", "question", "none"]
Parity = Literal["exact-index", "official-algorithm", "paper-algorithm", "own"]
PositionPolicy = Literal["preserve", "compact"]


@dataclass(frozen=True)
class Probe:
    """One yes/no question about one image, its label and the regions that support it."""

    id: str
    """Unique within a probe set, together with ``view``."""
    image: str
    """File name relative to the image root."""
    image_id: str
    question: str
    label: Label
    target_text: str
    """The queried string: its tokens are the target span."""
    source_text: str
    """The word that stands in the regions (equal to ``target_text`` on positives)."""
    regions: tuple[Box, ...]
    """Annotated evidence. Coverage is always audited against these."""
    boxes: tuple[Box, ...] | None = None
    """Selector-visible boxes; None means the regions themselves."""
    kind: str = ""
    """How the probe was made, for example ``small_positive`` or ``near_miss_negative``."""
    view: str = "orig"
    """Name of the image variant the question is asked about."""
    occlude: tuple[Box, ...] = ()
    """Boxes painted gray before encoding."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else the probe file carried; written back unchanged."""

    @property
    def visible_boxes(self) -> tuple[Box, ...]:
        return self.regions if self.boxes is None else self.boxes


@dataclass(frozen=True)
class Budget:
    """How many visual tokens may stay: a fraction of N or an absolute count, resolved before any method runs."""

    keep: float | None = None
    count: int | None = None

    @staticmethod
    def ratio(keep: float) -> Budget:
        if not 0.0 < keep <= 1.0:
            raise ValueError(f"keep must be in (0, 1], got {keep}")
        return Budget(keep=float(keep))

    @staticmethod
    def tokens(count: int) -> Budget:
        if count < 1:
            raise ValueError(f"a token budget must be at least 1, got {count}")
        return Budget(count=int(count))

    def resolve(self, n: int) -> int:
        """K = min(N, max(1, ceil(N * keep))), the product taken in double precision."""
        wanted = math.ceil(n * self.keep) if self.keep is not None else self.count or 0
        return min(n, max(1, wanted))

    def __str__(self) -> str:
        return repr(self.keep) if self.keep is not None else f"{self.count}t"


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
    """Per DeepStack level (N, D): features added to the first language layers; empty for most architectures."""
    cells: np.ndarray
    """(N, 4) float64, normalised to the original image."""
    layout: tuple[tuple[int, int], ...]
    """Row-major (rows, columns) blocks that make up the N tokens."""
    captured: Mapping[str, Tensor] = field(default_factory=dict)
    """Vision-layer activations that signals are computed from; only what some selector of the run needs."""
    preprocess_ms: float = 0.0
    vision_time: Elapsed | None = None

    @property
    def vision_ms(self) -> float:
        """Its share of the vision tower's time; waits until the device has got there."""
        return 0.0 if self.vision_time is None else self.vision_time.ms

    @property
    def n(self) -> int:
        return int(self.tokens.shape[0])


@dataclass(frozen=True)
class Prompt:
    """The text side of a probe under the model's chat template, as token ids around the image."""

    head: tuple[int, ...]
    """Ids before the visual tokens."""
    shared: tuple[int, ...]
    """Ids after them that the yes and the no sequence have in common."""
    yes: tuple[int, ...]
    no: tuple[int, ...]
    """What follows ``shared`` in each of the two complete sequences."""
    tail: tuple[int, ...]
    """Ids after the visual tokens of the prompt alone; scored tokens are those at or behind ``len(tail)``."""
    spans: Mapping[QuerySpan, tuple[int, ...]]
    """Indices into ``head + tail`` of the tokens that each query span consists of."""

    def length(self, k: int) -> int:
        """L: slots of the prefix with k visual tokens. A branch's last token is only predicted, so it has none."""
        return len(self.head) + k + len(self.shared) + len(self.yes[:-1]) + len(self.no[:-1])

    def prompt_length(self, k: int) -> int:
        """Of these, those of the prompt: where an answer changes how its end is tokenised, what all sequences share."""
        return len(self.head) + k + min(len(self.tail), len(self.shared))

    def full_length(self, n: int) -> int:
        """Positions of the prompt alone with all n visual tokens."""
        return len(self.head) + n + len(self.tail)


@dataclass(frozen=True)
class Prefix:
    """The shortened sequence that the language model reads, with both answer branches attached.

    Layout of the L positions: head, K visual tokens, shared text, inputs of the yes branch, inputs of the no branch.
    """

    embeds: Tensor
    """(L, D)"""
    positions: Tensor
    """(A, L) int64 logical position ids; A = 3 axes for multimodal rotary embeddings, else 1."""
    segments: Tensor
    """(L,) int64: 0 shared, 1 yes branch, 2 no branch. A branch sees the shared part and itself."""
    start: int
    """First visual slot; the visual tokens occupy ``start .. start + k``."""
    k: int
    deepstack: tuple[Tensor, ...]
    """Per level (K, D), pruned with the same plan as the tokens."""
    reads: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    """For yes and no: offsets behind the last visual slot whose logits are read, and the ids they must predict."""
    prompt_length: int
    """Positions that belong to the prompt (head, visual, prompt text): all that a layer selector may look at."""
    full_length: int
    """Prompt length before pruning."""


@dataclass(frozen=True)
class TokenView:
    """Everything a selector may look at for one image-question pair, on one device."""

    tokens: Tensor
    """(N, D) projected visual tokens as the language model receives them."""
    cells: Tensor
    """(N, 4) float64, the part of the image plane each token originates from."""
    layout: tuple[tuple[int, int], ...]
    """Row-major (rows, columns) blocks that the N tokens are made of: one grid, or one per tile and thumbnail."""
    query: Tensor
    """(T, D) input embeddings of the query span that the selector asked for; T may be 0."""
    boxes: Tensor
    """(M, 4) float64 selector-visible boxes, possibly none."""
    signals: Mapping[str, Tensor] = field(default_factory=dict)
    """Exactly what the selector's ``needs`` named."""
    key: str = ""
    """Deterministic salt for drawn selections: sample id, view, budget, selector."""


@dataclass(frozen=True)
class Selection:
    """What a selector answers: K output tokens, where each comes from, and how they are mixed if it merges.

    A merge is a matrix: output u = sum_i mix[u, i] * source i. Sources are the N visual tokens, followed, for
    towers that have one, by the class token at index N. The lineage of an output is the support of its row; a deletion
    (``mix is None``) has each output equal to its anchor.
    """

    anchors: Tensor
    """(K,) int64, the representative source of each output; -1 for an output that has no cell (a class token)."""
    mix: Tensor | None = None
    """(K, N) or (K, N + 1) float weights, or None for pure deletion."""
    merge_at: Literal["tokens", "vision"] = "tokens"
    """Whether ``mix`` acts on projected tokens or on vision hidden states, which are projected afterwards."""
    native_order: bool = True
    """Whether outputs are put into ascending anchor order before the model sees them; False to match the artifact."""


class Selector(Protocol):
    """A pruning method. Usually a frozen dataclass whose fields are its hyper-parameters."""

    @property
    def name(self) -> str: ...

    @property
    def query(self) -> QuerySpan:
        """Which part of the prompt ``TokenView.query`` holds."""
        ...

    @property
    def parity(self) -> Parity: ...

    @property
    def needs(self) -> frozenset[str]:
        """Signals beyond projected tokens; the engine computes only these and bills their time to the selector."""
        ...

    def select(self, view: TokenView, k: int) -> Selection:
        """Chooses k of the N visual tokens. The framework restores native order and checks count, range, uniqueness."""
        ...


@dataclass(frozen=True)
class LayerState:
    """What a method that prunes inside the language model may look at, once ``layer`` (0-based) has run."""

    layer: int
    hidden: Tensor
    """(L, D) output of that layer for the prompt; the scored continuation is never part of it."""
    image: Tensor
    """(n,) int64 ascending positions of the surviving visual tokens within the L."""
    source: Tensor
    """(n,) int64 the visual token, 0..N-1, that each of them was at the start."""
    layout: tuple[tuple[int, int], ...]
    """As in TokenView, for the N tokens at the start."""
    signals: Mapping[str, Tensor]
    """Exactly what ``needs`` named, for the prompt's L positions."""
    key: str = ""


class LayerSelector(Protocol):
    """A method that prunes inside the language model: it cuts the sequence after one or more layers."""

    @property
    def name(self) -> str: ...

    @property
    def parity(self) -> Parity: ...

    @property
    def needs(self) -> frozenset[str]: ...

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        """Layer -> number of visual tokens that continue past it. The last value is k, the budget."""
        ...

    def cut(self, state: LayerState, k: int) -> Selection:
        """Chooses among the n surviving visual tokens; anchors and mix index those n (0..n-1), not the original N."""
        ...
