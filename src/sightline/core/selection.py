"""A budget, what a method may look at, what it says about itself, what it answers, and how that is checked.

Torch is imported where a selection is at hand: whoever lists methods need not wait for it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args, get_origin, get_type_hints

from sightline.errors import SightlineError, named_line

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
    artifact: ClassVar[ByModel] = {}
    """Arguments with which the paper's artifact ran it, where they differ from the defaults."""
    ranges: ClassVar[Ranges] = {}
    """Of hyper-parameters for which not every number makes sense; a method outside is refused."""
    official_ms: ClassVar[float | None] = None
    """Median milliseconds of the official code at N = 576, K = 231 on one CPU thread, its scores included."""

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

    def check_probes(self, probe_ids: Iterable[str]) -> None:
        """Raises where the method cannot serve a probe, before a model is loaded; most serve any."""
        return None

    def count(self, probe_id: str, n: int, budget: Budget) -> int:
        """K for a probe whose image, or under ``/tile`` one tile of it, has n visual tokens."""
        return budget.resolve(n)


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
    """Exactly what ``needs`` named, for the prompt's L positions."""
    key: str = ""


class LayerSelector(Method):
    """A method that prunes inside the language model: it cuts the sequence after one or more layers."""

    inside: ClassVar[bool] = True

    @abstractmethod
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        """Layer -> number of visual tokens that continue past it. The last value is k, the budget."""

    @abstractmethod
    def cut(self, state: LayerState, k: int) -> Selection:
        """Chooses among the n surviving visual tokens; anchors and mix index those n (0..n-1), not the original N."""


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


# What the framework does to a selection so that no method has to: native order, and checks that are never silent.


@contextmanager
def on_behalf_of(selector: str) -> Iterator[None]:
    """Whatever a method raises, ``sys.exit`` included, is one line with its name.

    Memory that ran out is not its fault: whoever called may try again with less.
    """
    try:
        yield
    except SightlineError:
        raise
    except (Exception, SystemExit) as error:
        from sightline.device.work import is_out_of_memory

        if is_out_of_memory(error):
            raise
        raise SightlineError(
            f"selector {selector} failed ({named_line(error)}); sightline --debug shows where"
        ) from error


def check_types(selection: object, selector: str) -> None:
    """A ``Selection`` of integer anchors, whatever the method's author took for one."""
    import torch

    if not isinstance(selection, Selection):
        raise SightlineError(
            f"selector {selector} returned a {type(selection).__name__}; it must return Selection(anchors)"
        )
    anchors, mix = selection.anchors, selection.mix
    if (
        not isinstance(anchors, torch.Tensor)
        or anchors.dtype not in (torch.int64, torch.int32, torch.int16)
        or anchors.ndim != 1
    ):
        raise SightlineError(
            f"selector {selector} returned anchors that are {_described(anchors)}; a (K,) tensor of int64 is needed"
        )
    if mix is not None and not (isinstance(mix, torch.Tensor) and mix.is_floating_point() and mix.ndim == 2):
        raise SightlineError(
            f"selector {selector} returned a mix that is {_described(mix)}; a (K, N) tensor of floats is needed"
        )


def _described(value: object) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def in_native_order(selection: Selection) -> Selection:
    """Outputs sorted by anchor, those without a cell first. What the framework does so that no method has to."""
    import torch

    from sightline.device.work import on_device

    if not selection.native_order:
        return selection
    order = torch.argsort(selection.anchors, stable=True)
    mix = None if selection.mix is None else selection.mix[on_device(order, selection.mix.device)]
    return Selection(selection.anchors[order], mix, selection.merge_at)


def check_selection(selection: Selection, n: int, k: int, selector: str) -> None:
    """K outputs, distinct anchors within 0..N-1 (or -1), a mix of matching shape. A mismatch is never silent."""
    check_shapes(selection, n, k, selector)
    check_anchors(selection.anchors.cpu(), n, selector, merges=selection.mix is not None)


def check_shapes(selection: Selection, n: int, k: int, selector: str) -> None:
    """The part of the check that needs no value, so that it never waits for the device."""
    check_types(selection, selector)
    anchors, mix = selection.anchors, selection.mix
    if len(anchors) != k:
        raise SightlineError(f"selector {selector} returned {len(anchors)} tokens where the budget is {k}")
    if mix is not None and (mix.shape[0] != k or mix.shape[1] not in (n, n + 1)):
        raise SightlineError(f"selector {selector} returned a mix of shape {tuple(mix.shape)} for {k} x {n}")


def check_anchors(anchors: Tensor, n: int, selector: str, *, merges: bool) -> None:
    """The part of the check that looks at the (K,) anchors themselves, on the host."""
    import torch

    placed = anchors[anchors >= 0]
    if len(placed) and int(placed.max()) >= n:
        raise SightlineError(f"selector {selector} chose token {int(placed.max())} of {n}")
    if len(torch.unique(placed)) != len(placed):
        raise SightlineError(f"selector {selector} chose a token twice")
    if not merges and len(placed) != len(anchors):
        raise SightlineError(f"selector {selector} returned a token without a source but no mix")


def lineage_mask(selection: Selection, n: int) -> Tensor:
    """(N,) bool: every visual token that contributes to some output."""
    if selection.mix is not None:
        return contributing(selection.mix, n).cpu()
    anchors = selection.anchors.cpu()
    mask = anchors.new_zeros(n)
    mask[anchors] = 1
    return mask.bool()


def contributing(mix: Tensor, n: int) -> Tensor:
    """(N,) bool, where the (K, N) or (K, N + 1) mix is: the visual tokens that some output is mixed from."""
    return (mix[:, :n] != 0).any(dim=0)


def largest_shares(mix: Tensor, n: int) -> Tensor:
    """(N,) float32, where the (K, N) or (K, N + 1) mix is: the largest part that each visual token has in one output.

    It is positive exactly where ``contributing`` is true, however small the weight.
    """
    return output_parts(mix.float())[:, :n].amax(dim=0)


def output_parts(mix: Tensor) -> Tensor:
    """A float mix as parts of each output: |weight| / sum of the row's |weights|, so 1 / m in an even mix of m sources.

    What has a weight has a part, if only the smallest number of its type.
    """
    import torch

    least = torch.finfo(mix.dtype).tiny
    weights = mix.abs()
    parts = weights / weights.sum(dim=1, keepdim=True).clamp_min(least)
    return torch.where(mix != 0, parts.clamp(least, 1.0), 0.0)
