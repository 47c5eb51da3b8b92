"""What the framework does to a selection so that no method has to: native order, and checks that are never silent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from sightline.core.selection import Selection
from sightline.device.work import is_out_of_memory, on_device
from sightline.errors import SightlineError, named_line

INTEGERS = (torch.int64, torch.int32, torch.int16)


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
        if is_out_of_memory(error):
            raise
        raise SightlineError(
            f"selector {selector} failed ({named_line(error)}); sightline --debug shows where"
        ) from error


def check_types(selection: object, selector: str) -> None:
    """A ``Selection`` of integer anchors, whatever the method's author took for one."""
    if not isinstance(selection, Selection):
        raise SightlineError(
            f"selector {selector} returned a {type(selection).__name__}; it must return Selection(anchors)"
        )
    anchors, mix = selection.anchors, selection.mix
    if not isinstance(anchors, Tensor) or anchors.dtype not in INTEGERS or anchors.ndim != 1:
        raise SightlineError(
            f"selector {selector} returned anchors that are {_described(anchors)}; a (K,) tensor of int64 is needed"
        )
    if mix is not None and not (isinstance(mix, Tensor) and mix.is_floating_point() and mix.ndim == 2):
        raise SightlineError(
            f"selector {selector} returned a mix that is {_described(mix)}; a (K, N) tensor of floats is needed"
        )


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def in_native_order(selection: Selection) -> Selection:
    """Outputs sorted by anchor, those without a cell first. What the framework does so that no method has to."""
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
    mask = torch.zeros(n, dtype=torch.bool)
    mask[selection.anchors.cpu()] = True
    return mask


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
    least = torch.finfo(mix.dtype).tiny
    weights = mix.abs()
    parts = weights / weights.sum(dim=1, keepdim=True).clamp_min(least)
    return torch.where(mix != 0, parts.clamp(least, 1.0), 0.0)
