"""The promises of a pruning method, on drawn inputs instead of a model's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from sightline.contract.promise import as_promises, promise
from sightline.core.selection import Budget, LayerSelector, LayerState, Selection, Selector, TokenView
from sightline.core.selection_rules import check_selection, in_native_order, lineage_mask
from sightline.cost.select_inputs import Inputs

SIZES = (64, 60)
"""Visual tokens: a square raster, and one that is none."""
BUDGETS = (Budget.tokens(1), Budget.ratio(0.3), Budget.ratio(1.0))
LAYERS = 32
ELSEWHERE = ((0.6, 0.05, 0.95, 0.3),)
"""Other boxes than those of the drawn inputs."""


def check_selector(selector: Selector | LayerSelector) -> None:
    """Raises an ``AssertionError`` unless the method keeps what an audit relies on.

    It keeps K distinct tokens, for a budget of one token, of 30 % and of all; every anchor is in its lineage; it merges
    if and only if it says so; the same view leads to the same choice; it writes into nothing that it is shown; it takes
    half precision, no boxes and an empty query; the choice depends on boxes only if it says so; several views in one
    call are chosen from as each alone. One that prunes between layers: its schedule falls to K, and so on for each cut.
    """
    promise(isinstance(selector.name, str) and bool(selector.name), "a method needs a name")
    promise(selector.merges is not None, f"{selector.name} does not say whether it merges: set merges on its class")
    promise(selector.reads_boxes is not None, f"{selector.name} does not say whether it reads boxes: set reads_boxes")
    if selector.resizes:
        return  # it chooses among no tokens
    for n in SIZES:
        for budget in BUDGETS:
            k = selector.count("", n, budget)
            with as_promises(), torch.inference_mode():
                if isinstance(selector, LayerSelector) or selector.inside:
                    _check_inside(selector, n, k)  # type: ignore[arg-type]
                else:
                    _check_before(selector, n, k)


def _check_before(selector: Selector, n: int, k: int) -> None:
    name = selector.name
    view = Inputs(n, torch.device("cpu"), seed=n + k).view(selector.needs)
    before = _copies(view)
    chosen = selector.select(view, k)
    check_selection(chosen, n, k, name)
    _check_lineage(chosen, n, name, merges=bool(selector.merges))
    in_tower = chosen.mix is not None and chosen.merge_at == "vision"
    promise(
        selector.merges_vision or not in_tower, f"{name} merges states of the tower and does not say so (merges_vision)"
    )
    promise(_same_tensors(before, _copies(view)), f"{name} writes into the view that other methods see too")
    promise(_same(chosen, selector.select(view, k)), f"{name} chooses other tokens when asked again")
    moved = replace(view, boxes=torch.tensor(ELSEWHERE, dtype=torch.float64))
    if not selector.reads_boxes:
        promise(_same(chosen, selector.select(moved, k)), f"{name} reads boxes and does not say so (reads_boxes)")
    for what, other in _unusual(view).items():
        try:
            check_selection(selector.select(other, k), n, k, name)
        except Exception as error:
            raise AssertionError(f"{name} fails on {what}: {type(error).__name__}: {error}") from error
    together = selector.select_many([view, moved], k)
    alone = [selector.select(each, k) for each in (view, moved)]
    promise(
        len(together) == 2 and all(map(_same, together, alone)),
        f"{name} chooses otherwise from several views in one call (select_many) than from each alone",
    )


def _unusual(view: TokenView) -> dict[str, TokenView]:
    """Views that an audit may show, by what is unusual about them."""
    half = {name: signal.bfloat16() for name, signal in view.signals.items()}
    return {
        "half precision": replace(view, tokens=view.tokens.bfloat16(), query=view.query.bfloat16(), signals=half),
        "a view without boxes": replace(view, boxes=view.boxes[:0]),
        "an empty query": replace(view, query=view.query[:0]),
    }


def _check_inside(selector: LayerSelector, n: int, k: int) -> None:
    name = selector.name
    schedule = selector.schedule(n, k, LAYERS)
    counts = [schedule[layer] for layer in sorted(schedule)]
    promise(bool(counts) and counts[-1] == k, f"{name}: the last count of its schedule is not the budget {k}: {counts}")
    promise(counts == sorted(counts, reverse=True) and counts[0] <= n, f"{name}: its schedule does not fall: {counts}")
    promise(all(0 <= layer < LAYERS for layer in schedule), f"{name} cuts after a layer that {LAYERS} layers have not")
    state = Inputs(n, torch.device("cpu"), seed=n + k).state(selector.needs)
    before = _copies(state)
    chosen = selector.cut(state, counts[0])
    check_selection(chosen, n, counts[0], name)
    _check_lineage(chosen, n, name, merges=bool(selector.merges))
    promise(_same_tensors(before, _copies(state)), f"{name} writes into the state that it is shown")
    promise(_same(chosen, selector.cut(state, counts[0])), f"{name} chooses other tokens when asked again")


def _check_lineage(chosen: Selection, n: int, name: str, *, merges: bool) -> None:
    ordered = in_native_order(chosen)
    placed = ordered.anchors[ordered.anchors >= 0].cpu()
    promise(bool(lineage_mask(ordered, n)[placed].all()), f"{name} has an anchor that nothing of flows into its output")
    promise(merges or chosen.mix is None, f"{name} merges and does not say so (merges)")
    if chosen.mix is not None:
        promise(bool(torch.isfinite(chosen.mix).all()), f"{name} mixes with weights that are not finite")
        promise(bool((chosen.mix != 0).any(dim=1).all()), f"{name} has an output that nothing flows into")


def _copies(shown: TokenView | LayerState) -> dict[str, Tensor]:
    """Every tensor of a view or a state, copied."""
    values: dict[str, Any] = {field.name: getattr(shown, field.name) for field in fields(shown)}
    tensors = {name: value for name, value in values.items() if isinstance(value, Tensor)}
    return {name: value.clone() for name, value in (tensors | dict(shown.signals)).items()}


def _same_tensors(first: Mapping[str, Tensor], second: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


def _same(first: Selection, second: Selection) -> bool:
    """Whether two selections keep the same tokens, in native order, from the same sources."""
    one, other = in_native_order(first), in_native_order(second)
    if (one.mix is None) != (other.mix is None) or not torch.equal(one.anchors, other.anchors):
        return False
    return one.mix is None or other.mix is None or torch.equal(one.mix != 0, other.mix != 0)
