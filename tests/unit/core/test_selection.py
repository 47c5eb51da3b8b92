"""Budgets, selections and their checks, regimes of arms, and the cut of probes into shards."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.arms.arm import parse_arm
from sightline.auditing.loop import boxes_read
from sightline.core.row import cut_shards
from sightline.core.selection import Budget, Method, Regime, Selection, arm_regime, form_for
from sightline.core.selection_rules import contributing, in_native_order, largest_shares, lineage_mask, output_parts
from sightline.selectors.flowcut import FlowCut
from sightline.selectors.nuwa import Nuwa, TokenNuwa
from sightline.selectors.prumerge import PruMerge
from sightline.selectors.vscan import ReceivedVScan, VScan


def test_a_budget_is_rounded_up_per_tile_too_and_keeps_a_token_at_least_and_no_more_than_there_are() -> None:
    ratios = {0.3: 3, 1.0: 7, 0.01: 1, 0.0: 1}
    assert {keep: Budget(keep=keep).resolve(7) for keep in ratios} == ratios
    assert Budget.ratio(0.3).resolve(10) == 3
    assert [Budget.tokens(count).resolve(7) for count in (5, 9)] == [5, 7]
    tiles = ((2, 2), (2, 2), (1, 3))
    assert Budget.ratio(0.3).total(tiles) == 4
    assert Budget.ratio(0.3, per="tile").total(tiles) == 2 + 2 + 1


def test_outputs_stand_in_the_order_of_their_anchors() -> None:
    mix = torch.tensor([[0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    ordered = in_native_order(Selection(torch.tensor([2, -1, 1]), mix))
    assert ordered.anchors.tolist() == [-1, 1, 2]
    assert ordered.mix is not None
    assert torch.equal(ordered.mix, mix[[1, 2, 0]])


def test_parts_of_even_mixes_and_of_sources_that_are_subtracted() -> None:
    mix = torch.tensor([[3.0, 3.0, 3.0, 0.0], [0.0, 0.0, 0.0, 0.25]])
    assert output_parts(mix).tolist() == [pytest.approx([1 / 3] * 3 + [0.0]), [0.0, 0.0, 0.0, 1.0]]
    mix = torch.tensor([[1.0, -0.5, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0]])
    assert lineage_mask(Selection(torch.tensor([0, -1]), mix), 3).tolist() == [True, True, False]
    assert largest_shares(torch.tensor([[1.0, -1.0]]), 2).tolist() == [0.5, 0.5]


def test_every_source_with_a_weight_has_a_share_and_no_other() -> None:
    mixes = [
        torch.tensor([[1e4, 1e-7, 0.0, 0.0], [0.0, 1e-7, 0.0, 1.0]], dtype=dtype)
        for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.float64)
    ]
    for mix in (*mixes, torch.tensor([[1e10, 1e-45]])):  # the last is a denormal
        n = mix.shape[1]
        assert torch.equal(largest_shares(mix, n) > 0, contributing(mix, n)), mix
    shares = largest_shares(torch.tensor([[0.9, 0.1, 0.0], [0.25, 0.75, 0.0]]), 3)
    assert shares.tolist() == pytest.approx([0.9, 0.75, 0])
    assert largest_shares(torch.tensor([[1.0, 1.0, 2.0]]), 2).tolist() == [0.25, 0.25], "a class token has no cell"
    assert largest_shares(torch.zeros(2, 3), 3).tolist() == [0.0] * 3, "made of nothing"


def test_a_method_runs_in_its_other_form_only_where_that_is_served_and_the_first_is_not() -> None:
    """The one place where it is decided; arguments that were changed go along, others are those of the form."""

    def form(method: Method, *lacks: str, unprojected: str | None = None) -> Method:
        return form_for(method, lambda name: "not here" if name.startswith(lacks) else None, lambda: unprojected, 30)

    vscan = VScan(side=5)
    assert form(vscan, "vision.key") is vscan
    assert form(vscan, "vision.cls") == ReceivedVScan(local_layer=7, side=5)
    assert form(vscan, "vision.cls", "vision.received") is vscan, "to be refused for what it lacks itself"
    assert form(Nuwa(), unprojected="no") == TokenNuwa(), "whose tokens are merged behind the projector"
    assert form(FlowCut(), "vision.cls").needs == {
        f"vision.{kind}@{layer}" for kind in ("query", "key", "value") for layer in range(30)
    }
    assert form(PruMerge(), "vision.cls") == PruMerge(), "nothing is published"

    class Both(VScan):
        inside = True

    assert isinstance(form(Both(), "vision.cls"), Both), "a form of its first stage is none of both"


@pytest.mark.parametrize(
    ("arm", "regime", "with_detector"),
    [
        ("full", "full", "full"),
        ("target:0.3", "box-free method", "box-free method"),
        ("random:0.3", "box-free control", "box-free control"),
        ("protected:0.3", "oracle", "detector-assisted"),
        ("evidence_only:0.3", "oracle", "detector-assisted"),
        ("target:0.3:score=overlap", "oracle", "detector-assisted"),
        ("shuffled:0.3:score=overlap", "oracle", "detector-assisted"),
        ("masks:file=masks.jsonl", "replay", "replay"),
        ("target:0.3+remove_evidence", "box-free method", "box-free method"),
    ],
)
def test_the_regime_follows_from_what_an_arm_reads(arm: str, regime: Regime, with_detector: Regime) -> None:
    for source, detected, expected in (("annotation", False, regime), ("rapidocr", True, with_detector)):
        found = boxes_read(parse_arm(arm), {"box_source": source}, detected=detected)
        assert found == {"box_source": source if regime == "oracle" else "none", "regime": expected}
    unsaid = tuple(arm_regime("method", None, detected=detected) for detected in (False, True))
    assert unsaid == ("oracle", "detector-assisted"), "who does not say is taken to read them"
    assert {arm_regime("oracle", False, detected=detected) for detected in (False, True)} == {"oracle"}


def test_images_bound_a_shard_and_one_with_many_probes_fills_several() -> None:
    cuts = list(cut_shards([3, 1, 2, 5, 1], images=2, probes=None))
    assert [[part.image for part in cut] for cut in cuts] == [[0, 1], [2, 3], [4]]
    assert all(part.start == 0 for cut in cuts for part in cut)
    filled = [[tuple(part) for part in cut] for cut in cut_shards([2, 10, 1, 1, 1], images=8, probes=4)]
    assert filled == [[(0, 0, 2)], [(1, 0, 4)], [(1, 4, 8)], [(1, 8, 10), (2, 0, 1), (3, 0, 1)], [(4, 0, 1)]]


@given(st.lists(st.integers(1, 40)), st.integers(1, 5), st.none() | st.integers(1, 12))
def test_every_probe_is_in_one_shard_and_none_is_too_large(sizes: list[int], images: int, probes: int | None) -> None:
    cuts = list(cut_shards(sizes, images, probes))
    found = [(part.image, place) for cut in cuts for part in cut for place in range(part.start, part.stop)]
    assert found == [(image, place) for image, size in enumerate(sizes) for place in range(size)]
    assert all(0 < len(cut) <= images for cut in cuts)
    if probes is not None:
        assert all(sum(part.stop - part.start for part in cut) <= probes for cut in cuts)
        divided = {part.image for cut in cuts for part in cut if part.stop - part.start < sizes[part.image]}
        assert all(sizes[image] > probes for image in divided)
