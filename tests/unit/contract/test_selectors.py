"""``check_selector`` passes what keeps its promises and names what does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch

from sightline.contract import check_selector
from sightline.core.selection import LayerSelector, LayerState, Selection, Selector, TokenView
from sightline.selectors import SELECTORS


@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "masks"])
def test_every_method_of_sightline_keeps_the_promises(name: str) -> None:
    kind: Any = SELECTORS.get(name)
    check_selector(kind())


@dataclass(frozen=True)
class First(Selector):
    """Keeps the first tokens: nothing to complain about. The others below break one promise each."""

    name: ClassVar[str] = "first"

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k))


class OneTooMany(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k + 1))


class Twice(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.zeros(k, dtype=torch.int64))


class Forgetful(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.randperm(len(view.tokens))[:k])


class SecretMerge(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k), torch.eye(k, len(view.tokens)))


class InTheTower(First):
    merges: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k), torch.eye(k, len(view.tokens)), merge_at="vision")


class Empty(First):
    merges: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        mix = torch.eye(k, len(view.tokens))
        mix[-1] = 0.0
        return Selection(torch.arange(k), mix)


class Silent(First):
    merges: ClassVar[bool | None] = None


class SecretBoxes(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(k) + int(view.boxes.sum() > 2.0 and k < len(view.tokens)))


class NeedsBoxes(First):
    reads_boxes: ClassVar[bool] = True

    def select(self, view: TokenView, k: int) -> Selection:
        view.boxes[0]
        return Selection(torch.arange(k))


class NeedsQuery(First):
    def select(self, view: TokenView, k: int) -> Selection:
        view.query.argmax()
        return Selection(torch.arange(k))


class FullPrecision(First):
    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.from_numpy(view.tokens.numpy()).norm(dim=1).topk(k).indices)


class Scribbles(First):
    def select(self, view: TokenView, k: int) -> Selection:
        view.tokens[0] = 0.0
        return Selection(torch.arange(k))


class OtherTogether(First):
    def select_many(self, views: Any, k: int) -> list[Selection]:
        return [Selection(torch.arange(len(view.tokens) - k, len(view.tokens))) for view in views]


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (OneTooMany, "returned 2 tokens where the budget is 1"),
        (Twice, "chose a token twice"),
        (Forgetful, "chooses other tokens when asked again"),
        (SecretMerge, "merges and does not say so"),
        (InTheTower, "merges states of the tower and does not say so"),
        (Empty, "first has an (anchor that nothing of flows into its output|output that nothing flows into)"),
        (Silent, "does not say whether it merges"),
        (SecretBoxes, "reads boxes and does not say so"),
        (NeedsBoxes, "fails on a view without boxes: IndexError"),
        (NeedsQuery, "fails on an empty query: IndexError"),
        (FullPrecision, "fails on half precision: TypeError"),
        (Scribbles, "writes into the view"),
        (OtherTogether, "from several views in one call"),
    ],
)
def test_a_broken_promise_is_named(broken: type[First], sentence: str) -> None:
    check_selector(First())
    with pytest.raises(AssertionError, match=sentence):
        check_selector(broken())


@dataclass(frozen=True)
class Stops(LayerSelector):
    """Keeps the first tokens after layer 3."""

    name: ClassVar[str] = "stops"

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {3: k}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(torch.arange(k))


class MissesTheBudget(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {3: n}


class Rises(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {1: 1, 2: n, 3: k}


class TooDeep(Stops):
    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {layers: k}


@pytest.mark.parametrize(
    ("broken", "sentence"),
    [
        (MissesTheBudget, "the last count of its schedule is not the budget 1"),
        (Rises, "its schedule does not fall"),
        (TooDeep, "cuts after a layer that 32 layers have not"),
    ],
)
def test_a_schedule_that_cannot_work_is_named(broken: type[Stops], sentence: str) -> None:
    check_selector(Stops())
    with pytest.raises(AssertionError, match=sentence):
        check_selector(broken())
