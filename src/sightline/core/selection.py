"""A budget, what a method may look at, what it says about itself, what it answers, and how that is checked.

Torch is imported where a selection is at hand: whoever lists methods need not wait for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import lru_cache
from inspect import getattr_static
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar, cast, get_args, get_origin, get_type_hints

from sightline.errors import SightlineError, nearest

if TYPE_CHECKING:
    from torch import Tensor


QuerySpan = Literal["target", "prompt", "question", "focus", "none"]
Parity = Literal["exact-index", "official-algorithm", "paper-algorithm", "own"]
PARITY_WORDS: Mapping[Parity, str] = {
    "exact-index": "chooses the tokens that the published implementation chose in every recorded case",
    "official-algorithm": "follows the published implementation, except where its description says",
    "paper-algorithm": "follows what is published about the method; no parity data, no recorded case to compare with",
    "own": "nothing published to compare with",
}
"""What each promise means, as users read it."""
Role = Literal["reference", "method", "control", "oracle", "replay"]
"""What an arm is there for. ``reference``: the unpruned model. ``method``: meant to keep what matters, so it needs
controls beside it. ``control``: ignores the evidence on purpose. ``oracle``: keeps or avoids the boxes themselves,
which no deployed method could. ``replay``: masks that something else made. Box-free or not is ``reads_boxes``."""
Ranges = Mapping[str, tuple[float, float]]
"""Least and greatest value by argument."""
ByModel = Mapping[str, Mapping[str, Any]]
"""Arguments by model type (``llava``, ``qwen3_vl``); ``*`` stands for every model."""
Layout = tuple[tuple[int, int], ...]
"""Row-major (rows, columns) blocks that the N tokens are made of: one grid, or one per tile and thumbnail."""
Per = Literal["image", "tile"]
PositionPolicy = Literal["preserve", "compact"]
"""Whether kept tokens go by the positions that they had, or close the gaps between them."""
WHOLE, ROUNDED = 100_000, 3
"""A number of tokens at which rounding does not show, and one that rounding may make up."""
PER_TILE = "/tile"
"""How a budget ends that every tile has for itself."""


@dataclass(frozen=True)
class Budget:
    """How many visual tokens may stay: a fraction or an absolute count, resolved before any method runs.

    It counts visual tokens that have a source in the image; separators (newlines, breaks) are not counted. ``per`` says
    of what: all N tokens of the image, or those of every block of its layout (tile, thumbnail, base picture) by itself.
    """

    keep: float | None = None
    count: int | None = None
    per: Per = "image"

    @staticmethod
    def ratio(keep: float, per: Per = "image") -> Budget:
        if not 0.0 < keep <= 1.0:
            raise ValueError(f"keep must be in (0, 1], got {keep}")
        return Budget(keep=float(keep), per=per)

    @staticmethod
    def tokens(count: int, per: Per = "image") -> Budget:
        if count < 1:
            raise ValueError(f"a token budget must be at least 1, got {count}")
        return Budget(count=int(count), per=per)

    def resolve(self, n: int) -> int:
        """K = min(n, max(1, ceil(n * keep))), the product taken in double precision.

        n is what the budget is counted over: N, or under ``/tile`` the tokens of one tile.
        """
        wanted = math.ceil(n * self.keep) if self.keep is not None else self.count or 0
        return min(n, max(1, wanted))

    def total(self, layout: Layout) -> int:
        """K of an image with this layout: sum over what it is counted over of ``resolve(n)``."""
        sizes = [rows * columns for rows, columns in layout]
        return sum(map(self.resolve, sizes if self.per == "tile" else [sum(sizes)]))

    @property
    def amount(self) -> str:
        """How much, whatever it is counted over: ``0.3`` of ``0.3/tile``."""
        return repr(self.keep) if self.keep is not None else f"{self.count}t"

    def __str__(self) -> str:
        return self.amount + (PER_TILE if self.per == "tile" else "")


@dataclass(frozen=True)
class TokenView:
    """Everything a selector may look at for one image-question pair, on one device.

    Under a budget of every tile's own it is one tile: its tokens, its cells, its part of each signal.
    """

    tokens: Tensor
    """(N, D) projected visual tokens as the language model receives them."""
    cells: Tensor
    """(N, 4) float64, the part of the image plane each token originates from."""
    layout: Layout
    query: Tensor
    """(T, D) input embeddings of the query span that the selector asked for; T may be 0."""
    boxes: Tensor
    """(M, 4) float64 selector-visible boxes, possibly none."""
    signals: Mapping[str, Tensor] = field(default_factory=dict)
    """Exactly what the selector's ``needs`` named."""
    key: str = ""
    """Deterministic salt for drawn selections: sample id, view, budget, selector, and which tile if it is one."""
    probe_id: str = ""
    """Whose view it is, for a method that looks something up."""


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


@lru_cache
def ranges_of(kind: type) -> Ranges:
    """The bounds of arguments: those of the class over those of the classes that it is made from."""
    found: dict[str, tuple[float, float]] = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get("ranges", {})
    return found


@lru_cache
def _choices_of(kind: type) -> Mapping[str, tuple[Any, ...]]:
    """Arguments whose type lists their values, by name."""
    try:
        hints = get_type_hints(kind)
    except NameError:  # of a class inside a function: what it says of itself cannot be read
        return {}
    return {name: get_args(hint) for name, hint in hints.items() if get_origin(hint) is Literal}


def argument_refusal(kind: type, name: str, value: Any) -> str:
    """Why an argument of this class cannot have the value, by its range or its type; empty where it can."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = ranges_of(kind).get(name, (-math.inf, math.inf))
        if not least <= value <= most:
            bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
            return f"{name}={value}; it must be {bounds}"
    choices = _choices_of(kind).get(name)
    if choices and value not in choices:
        return f"{name}={value}; choose one of {', '.join(map(str, choices))}"
    return ""


class Method(ABC):
    """What every pruning method says about itself; nothing else in Sightline lists methods by name.

    Usually a frozen dataclass whose fields are its hyper-parameters. Facts of the class are class variables; those that
    may depend on a hyper-parameter are properties here, and a subclass overrides them by either.
    """

    name: ClassVar[str]
    parity: ClassVar[Parity] = "own"
    """What is promised about a published implementation."""
    role: ClassVar[Role] = "method"
    inside: ClassVar[bool] = False
    """Whether it prunes between language layers instead of before them."""
    merges: ClassVar[bool | None] = False
    """Whether outputs mix several tokens, so that no single one can be deleted or restored; None: nobody has said."""
    resizes: ClassVar[bool] = False
    """Whether the image is shown smaller, so that the model itself makes no more tokens than the budget allows, instead
    of tokens being chosen among those of the image."""
    needs_budget: ClassVar[bool] = True
    """Whether an arm must name a budget; ``count`` knows it otherwise."""
    budget_counts: ClassVar[Literal["kept", "layers"]] = "kept"
    """What K counts: the tokens that are left in the end, or the mean over the language layers of those each reads."""
    needs_file: ClassVar[str] = ""
    """The argument that names a file without which it cannot be run: replayed masks, a trained head; empty: none."""
    artifact: ClassVar[ByModel] = {}
    """Arguments with which the paper's artifact ran it, where they differ from the defaults."""
    ranges: ClassVar[Ranges] = {}
    """Of hyper-parameters for which not every number makes sense; a method outside is refused."""
    official_ms: ClassVar[float | None] = None
    """Median milliseconds of the official code at N = 576, K = 231 on one CPU thread, its scores included."""
    form: ClassVar[str] = ""
    """Of a form for other models (``other_form``): who published it and for which, in words that rows repeat."""
    unpublished: ClassVar[str] = ""
    """Of a method without one: what its authors published about models that lack what it needs, as refusals say it."""

    def __post_init__(self) -> None:
        """Of a dataclass: an argument that no method of its kind can use is refused however the method is made."""
        for each in fields(cast(Any, self)):
            if refusal := argument_refusal(type(self), each.name, getattr(self, each.name)):
                raise SightlineError(f"{self.name}: {refusal}")

    @classmethod
    def published_by_others(cls) -> bool:
        """Whether it is a method, no control, and its docstring has a ``Reference:``, the paper of somebody else."""
        lines = (cls.__doc__ or "").splitlines()
        return cls.role == "method" and any(line.strip().startswith("Reference: ") for line in lines)

    @property
    def needs(self) -> frozenset[str]:
        """Signals beyond projected tokens; only these are computed, and their time is billed to the method."""
        return frozenset()

    def other_form(self, blocks: int) -> Method | None:
        """As its authors, or public code that others ship, have it for models that lack what it needs (a class token,
        CLIP's space, states that can be projected one by one); ``blocks`` are those of the tower. ``form_for`` asks."""
        return None

    @property
    def merges_vision(self) -> bool:
        """Whether it mixes hidden states of the vision tower, which become tokens afterwards (``merge_at``)."""
        return False

    @property
    def reads_boxes(self) -> bool | None:
        """Whether the result depends on boxes, so that finding them is part of its cost; None: nobody has said."""
        return False

    @property
    def salt(self) -> str:
        """The method's part of the key that draws are seeded with."""
        return self.name

    @property
    def batches(self) -> bool:
        """Whether several images in one call are cheaper than one call each."""
        return False

    def digest(self) -> str | None:
        """Of the file that the method reads, if it reads one: rows made from another file do not belong in one run."""
        return None

    def head_mismatch(self, sizes: Mapping[str, int]) -> str | None:
        """Why trained parts of its own do not fit a model of these sizes, by name; None where they do."""
        return None

    def check_probes(self, probe_ids: Iterable[str]) -> None:
        """Raises where the method cannot serve a probe, before a model is loaded; most serve any."""
        return None

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        """K for a probe whose image, or under ``/tile`` one tile of it, has n visual tokens."""
        return budget.resolve(n)


Made = TypeVar("Made", bound=Method)
PUBLISHED_BLOCKS = 24
"""Of a vision tower that nobody has seen: as many as CLIP's large one has."""


def build_form(kind: type[Made], method: Method, **published: Any) -> Made:
    """A form of the method: its own arguments where changed, else those ``published`` for it, else its defaults."""
    named = {each.name for each in fields(cast(Any, kind))}
    given = {each.name: (getattr(method, each.name), each.default) for each in fields(cast(Any, method))}
    return kind(**published | {name: mine for name, (mine, usual) in given.items() if name in named and mine != usual})


def form_for(
    method: Method, serves: Callable[[str], str | None], unprojected: Callable[[], str | None], blocks: int | None
) -> Method:
    """The method, or its other form on a model that serves all that this needs and not all that the method does.

    The one place where that is decided. ``unprojected`` says why merged states of the tower cannot be tokens there.
    """

    def lacks(each: Method) -> bool:
        return any(serves(name) is not None for name in each.needs) or bool(each.merges_vision and unprojected())

    if type(method).other_form is Method.other_form or not lacks(method):
        return method
    other = method.other_form(PUBLISHED_BLOCKS if blocks is None else blocks)
    # What is made of a method and of a cut between layers has no form in that of the first alone.
    return method if other is None or other.inside != method.inside or lacks(other) else other


class Selector(Method):
    """A method that prunes before the language model."""

    @property
    def query(self) -> QuerySpan:
        """Which part of the prompt ``TokenView.query`` holds."""
        return "none"

    @property
    def batches(self) -> bool:
        return type(self).select_many is not Selector.select_many

    @abstractmethod
    def select(self, view: TokenView, k: int) -> Selection:
        """Chooses k of the N visual tokens. The framework restores native order and checks count, range, uniqueness."""

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        """For views with equally many tokens, each treated as if alone. Define it where one call is cheaper."""
        return [self.select(view, k) for view in views]


class BatchSelector(Selector):
    """A selector that is written for several views at once; one view is a batch of one."""

    def select(self, view: TokenView, k: int) -> Selection:
        return self.select_many([view], k)[0]

    @abstractmethod
    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]: ...


@dataclass(frozen=True)
class LayerState:
    """What a method that prunes inside the language model may look at, once ``layer`` (0-based) has run.

    Under a budget of every tile's own it is the prompt with one tile in it: no token of another is among the L.
    """

    layer: int
    hidden: Tensor
    """(L, D) output of that layer for the prompt; the scored continuation is never part of it."""
    image: Tensor
    """(n,) int64 ascending positions of the surviving visual tokens within the L."""
    source: Tensor
    """(n,) int64 the visual token, 0..N-1, that each of them was at the start."""
    layout: Layout
    """As in TokenView, for the N tokens at the start."""
    signals: Mapping[str, Tensor]
    """Exactly what ``needs`` named, for the prompt's L positions; ``vision.*`` for the N tokens at the start."""
    key: str = ""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the method itself noted at earlier layers of this prompt; it may write here and nowhere else."""
    budget: int = 0
    """K"""
    layers: int = 0
    """Of the language model."""


class LayerSelector(Method):
    """A method that prunes inside the language model: it cuts the sequence after one or more layers."""

    inside: ClassVar[bool] = True
    varies: ClassVar[bool] = False
    """Whether a cut may let fewer tokens continue than the schedule allows, as the question asks for: it is asked at
    every layer of the schedule, and each question is answered by itself."""
    rehearses: ClassVar[bool] = False
    """Whether the prompt is read in full first, to ``look`` at every layer of it, before it is read for the answer."""

    @abstractmethod
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        """Layer -> number of visual tokens that continue past it, 0 where none does.

        The last value is k, the budget, unless that is a mean over the layers (``budget_counts``).
        """

    def scout(self, layer: int, like: Tensor) -> Tensor | None:
        """(D,) what the method adds, before a layer, to a token of its own behind the prompt; None: it has no such one.

        At layer 0 it is all that the token is. No other token sees it, and the method sees it as ``lm.scout`` at the
        layers of its schedule, which names every layer that the token is to be read by.
        """
        return None

    @abstractmethod
    def cut(self, state: LayerState, k: int) -> Selection:
        """Chooses among the n surviving visual tokens; anchors and mix index those n (0..n-1), not the original N."""

    def look(self, state: LayerState) -> None:
        """At a layer of the schedule past which every token continues: something may be noted for later cuts."""
        return None


class TwoStages(LayerSelector):
    """A method that selects before the language model and cuts inside it, under one budget.

    It is made of its stages, ``class Both(TwoStages, First, Second)``: ``select`` is the selector's, ``cut`` the layer
    selector's, arguments are those of both. K is the mean over the language layers. So many tokens reach the model
    that with the published ``share`` of them left behind the last cut the mean is K.
    """

    budget_counts: ClassVar[Literal["kept", "layers"]] = "layers"
    official_ms: ClassVar[Any] = None
    share: float
    """Of the tokens that reach the language model, the part that is left behind the last cut."""

    @property
    def _of_both(self) -> frozenset[str]:
        stages: list[Any] = [getattr_static(stage, "needs") for stage in type(self).__bases__[1:]]
        return frozenset().union(*(each.__get__(self) if isinstance(each, property) else each for each in stages))

    needs: ClassVar[Any] = _of_both

    def reaching(self, budget: Budget, layers: int) -> Budget:
        """How many of the N tokens reach the language model, which has so many layers."""
        times = self._times(layers)
        if budget.count is not None:
            return Budget.tokens(round(budget.count * times))
        return Budget.ratio(min(1.0, (budget.keep or 1.0) * times))

    def _times(self, layers: int) -> float:
        return WHOLE / self._mean(WHOLE, round(self.share * WHOLE), layers)

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        """Of n tokens that reached the model. Where all N did, and the mean would fall short of k, more are left."""
        left = round(self.share * n)
        if k * self._times(layers) > n + ROUNDED:
            left += bisect_right(range(left, n + 1), float(k), key=lambda more: self._mean(n, more, layers)) - 1
        return super().schedule(n, max(0, left), layers)  # type: ignore[safe-super]

    def _mean(self, n: int, left: int, layers: int) -> float:
        """Mean over the layers of the tokens that each reads, if n reach the model and ``left`` are left."""
        cuts = super().schedule(n, left, layers)  # type: ignore[safe-super]
        counts = [min([n, *(count for after, count in cuts.items() if after < layer)]) for layer in range(layers)]
        return sum(counts) / layers


# Under which terms an arm chose its tokens: what may be ranked with what.
#
# A method that was shown where the evidence is cannot lose it. Beside methods that had to find it, it is a diagnostic
# and no competitor, so every row says which of the two its arm is.

Regime = Literal["full", "box-free method", "box-free control", "detector-assisted", "oracle", "replay"]
"""``full``: nothing is pruned. ``box-free``: image and prompt alone. ``detector-assisted``: boxes that a text detector
found in the image, as an application could. ``oracle``: annotated boxes, or damaged copies of them. ``replay``: masks
from a file, which does not say what they were chosen by."""
NO_BOXES = "none"
"""The box source of an arm that reads no boxes."""


def arm_regime(role: Role, reads_boxes: bool | None, detected: bool) -> Regime:
    """The regime of an arm, from what its method says about itself and whether the run's boxes were ``detected``.

    A method that does not say whether it reads boxes is taken to read them: too modest a claim misleads nobody. Boxes
    decide before the role does, so a control that looks at annotated boxes is an oracle too; an oracle that reads
    none knows something else that no deployed method could.
    """
    if role == "replay":
        return "replay"
    if role == "reference":
        return "full"
    if reads_boxes is not False:
        return "detector-assisted" if detected else "oracle"
    if role == "oracle":
        return "oracle"
    return "box-free control" if role == "control" else "box-free method"


# Signals by name, ``kind@layer``, which a method may ask for; ``sightline.backbones.signals`` computes them.

HIDDEN_KINDS = ("vision.hidden", "vision.cls", "vision.hidden_mean")
"""Signals read from hidden states; every other vision signal is read from a block's attention inputs."""
BLOCK_KINDS = (
    "vision.cls_attention", "vision.received", "vision.query", "vision.key", "vision.value", "vision.cls_key",
    "vision.cls_query", "vision.cls_value",
)  # fmt: skip
PIXELS = "image.pixels"
SENSITIVITY = "projector.sensitivity"
LAYERLESS_KINDS = ("clip.image", "clip.text", PIXELS, SENSITIVITY)
LANGUAGE_KINDS = (
    "lm.attention", "lm.attention_last", "lm.next_attention", "lm.next_attention_last", "lm.next_query", "lm.next_key",
    "lm.query", "lm.key", "lm.value", "lm.bare_query", "lm.bare_key", "lm.rotary", "lm.input", "lm.parts", "lm.normed",
    "lm.embeds", "lm.scout",
)  # fmt: skip
"""Signals of the language layer that just ran, for methods that cut between layers."""
TOKEN_AXIS = {
    **dict.fromkeys(("vision.hidden", "vision.hidden_mean", "vision.received", "clip.image", PIXELS, SENSITIVITY), 0),
    **dict.fromkeys(("vision.cls_attention", "vision.query", "vision.key", "vision.value"), 1),
}
"""Of kinds that have a value per visual token, the axis along which the N of them lie; all others are of the image, its
class token or the question."""
PROMPT_AXES: Mapping[str, tuple[int, ...]] = {
    **dict.fromkeys(LANGUAGE_KINDS, (1,)),
    **dict.fromkeys(("lm.attention", "lm.next_attention"), (1, 2)),
    **dict.fromkeys(("lm.input", "lm.normed", "lm.embeds"), (0,)),
    "lm.parts": (2,),
}
"""The axes along which the prompt's positions lie: as shortened so far, of ``lm.embeds`` before any cut."""


def misnamed(name: str, inside: bool) -> str | None:
    """None for a signal that a method before (or ``inside``) the language model may name, else what is wrong."""
    kind, layer = split_name(name)
    if kind not in (known := (*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS, *LANGUAGE_KINDS)):
        return f"there is no signal {kind}; {nearest(kind, known, 'see docs/signals.md')}"
    if inside != (kind in LANGUAGE_KINDS) and not (inside and kind.startswith("vision.")):
        return f"{name} is for methods that prune {'before' if inside else 'inside'} the language model"
    if kind in (*LAYERLESS_KINDS, *LANGUAGE_KINDS):
        return f"{kind} takes no layer, but {name} names one" if layer else None
    if kind == "vision.hidden_mean":
        first, _, last = layer.partition(":")
        if not (_is_integer(first) and _is_integer(last)):
            return f"{name} needs a range of hidden states, for example {kind}@16:24"
    elif not _is_integer(layer):
        return f"{name} needs a layer, for example {kind}@-2"
    return None


def _is_integer(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


def split_name(name: str) -> tuple[str, str]:
    kind, _, layer = name.partition("@")
    return kind, layer


def of_tokens(name: str, signal: Tensor, first: int, count: int) -> Tensor:
    """The signal of ``count`` visual tokens from ``first`` on; one that has no value per token is theirs as it is."""
    axis = TOKEN_AXIS.get(split_name(name)[0])
    return signal if axis is None else signal.narrow(axis, first, count)


def of_image(needs: Iterable[str]) -> frozenset[str]:
    """Of the signals named those that are known before the language model runs."""
    return frozenset(name for name in needs if split_name(name)[0] not in LANGUAGE_KINDS)


def of_positions(name: str, signal: Tensor, now: Tensor, uncut: Tensor) -> Tensor:
    """A language signal of some positions of the prompt alone: ``now`` among those left, ``uncut`` among all."""
    positions = (uncut if name == "lm.embeds" else now).to(signal.device)
    if name == "lm.scout":  # the method's own token, behind the prompt, stays
        positions = positions.new_tensor([*positions.tolist(), signal.shape[1] - 1])
    for axis in PROMPT_AXES[name]:
        signal = signal.index_select(axis, positions)
    return signal


def hidden_indices(names: Iterable[str], depth: int) -> frozenset[int]:
    """Which hidden states (0..depth) must be kept for these signals."""
    kept: set[int] = set()
    for name in names:
        kind, layer = split_name(name)
        if not kind.startswith("vision."):
            if kind == "clip.image":
                kept.add(hidden_index(-2, depth, name))
            continue
        if ":" in layer:
            first, last = (hidden_index(int(part), depth, name) for part in layer.split(":"))
            if first > last:
                raise SightlineError(f"signal {name} needs a range of hidden states, and {first} is behind {last}")
            kept.update(range(first, last + 1))
        elif kind in HIDDEN_KINDS:
            kept.add(hidden_index(int(layer), depth, name))
        else:
            kept.add(block_index(name, depth))
    return frozenset(kept)


def hidden_index(layer: int, depth: int, name: str) -> int:
    """A hidden state of a signal, counted from the end where negative, as a non-negative index."""
    index = layer if layer >= 0 else depth + 1 + layer
    if not 0 <= index <= depth:
        raise SightlineError(f"signal {name}: the vision tower has hidden states 0..{depth}")
    return index


def block_index(name: str, depth: int) -> int:
    """The block an attention signal is about, as a non-negative index."""
    layer = int(split_name(name)[1])
    index = layer if layer >= 0 else depth + layer
    if not 0 <= index < depth:
        raise SightlineError(f"signal {name}: the vision tower has blocks 0..{depth - 1}")
    return index
