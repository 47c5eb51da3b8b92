"""Selectors of the first release: plain classes without a base still run, and nothing is claimed in their name."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import pytest
import torch

from sightline.boxes.sources import reads_boxes
from sightline.core.adoption import adopted
from sightline.core.selection import (
    Budget,
    LayerSelector,
    LayerState,
    Parity,
    QuerySpan,
    Selection,
    Selector,
    TokenView,
)
from sightline.cost.selection import Inputs
from sightline.errors import SightlineError


@dataclass(frozen=True)
class First:
    """Keeps the first tokens."""

    start: int = 0

    name: ClassVar[str] = "first"
    query: ClassVar[QuerySpan] = "question"
    parity: ClassVar[Parity] = "own"
    needs: ClassVar[frozenset[str]] = frozenset({"vision.received@-1"})

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(torch.arange(self.start, self.start + k))


def test_a_plain_class_becomes_a_selector_that_keeps_what_it_says() -> None:
    kind: Any = adopted(First)
    selector = kind(start=3)
    assert isinstance(selector, First)
    assert isinstance(selector, Selector)
    assert (kind.__module__, kind.__qualname__, kind.__doc__) == (First.__module__, "First", First.__doc__)
    assert (selector.query, selector.needs, selector.salt) == ("question", First.needs, "first")
    assert selector.count("p", 100, Budget.ratio(0.3)) == 30
    assert selector.digest() is None
    assert not selector.inside
    assert not selector.batches
    view = Inputs(16, torch.device("cpu"), seed=0).view(frozenset())
    assert selector.select_many([view, view], 2)[1].anchors.tolist() == [3, 4]


def test_what_its_author_did_not_say_is_unknown_and_detection_is_billed() -> None:
    selector: Any = adopted(First)()
    assert selector.merges is None
    assert selector.reads_boxes is None
    assert reads_boxes(selector)


def test_a_plain_class_may_say_it_without_a_base() -> None:
    @dataclass(frozen=True)
    class Says(First):
        merges: ClassVar[bool] = False
        reads_boxes: ClassVar[bool] = False

    selector: Any = adopted(Says)()
    assert selector.merges is False
    assert not reads_boxes(selector)


def test_a_field_without_default_is_not_hidden_by_a_property_of_the_base() -> None:
    @dataclass(frozen=True)
    class Wants(First):
        needs: frozenset[str] = frozenset()  # type: ignore[misc]
        salt: str = "own"

    @dataclass(frozen=True)
    class Asks:
        needs: frozenset[str]
        name: ClassVar[str] = "asks"

        def select(self, view: TokenView, k: int) -> Selection:
            return Selection(torch.arange(k))

    wants: Any = adopted(Wants)
    asks: Any = adopted(Asks)
    first, second = wants(needs=frozenset({"clip.image"})), asks(frozenset({"clip.text"}))
    assert (first.needs, first.salt) == ({"clip.image"}, "own")
    assert second.needs == {"clip.text"}
    assert [field.name for field in fields(second)] == ["needs"]


def test_the_hooks_of_the_first_release_are_called() -> None:
    @dataclass(frozen=True)
    class Counts(First):
        def budget(self, probe_id: str, n: int) -> int:
            return n // len(probe_id)

        def digest(self) -> str:
            return "abc"

        def select_many(self, views: Any, k: int) -> list[Selection]:
            return [Selection(torch.arange(k)) for _ in views]

    selector: Any = adopted(Counts)()
    assert selector.count("four", 100, Budget.ratio(0.3)) == 25
    assert selector.digest() == "abc"
    assert selector.batches


def test_a_plain_class_that_cuts_prunes_inside() -> None:
    class Cuts:
        name = "cuts"
        needs = frozenset({"lm.key"})

        def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
            return {0: k}

        def cut(self, state: LayerState, k: int) -> Selection:
            return Selection(torch.arange(k))

    selector: Any = adopted(Cuts)()
    assert isinstance(selector, LayerSelector)
    assert selector.inside


def test_a_class_of_today_is_left_alone() -> None:
    class Own(Selector):
        name: ClassVar[str] = "own"

    assert adopted(Own) is Own
    with pytest.raises(TypeError, match="select"):
        Own()  # type: ignore[abstract]


def test_an_argument_that_would_be_taken_for_a_trait_is_refused_by_name() -> None:
    @dataclass(frozen=True)
    class Several(First):
        count: int = 4

    with pytest.raises(SightlineError, match=r"argument 'count' of .*Several means something else now"):
        adopted(Several)
