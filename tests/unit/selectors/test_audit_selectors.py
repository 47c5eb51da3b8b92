"""The paper's own selectors, the controls beside them, and replayed masks."""

from __future__ import annotations

import gzip
import json
import math
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.core.selection import Budget, TokenView
from sightline.geometry.cells import cropped_cells, grid_cells, tile_cells
from sightline.selectors.controls import Bottom, Center, Random, Shuffled
from sightline.selectors.evidence import (
    AntiEvidence,
    CenterProtected,
    EvidenceOnly,
    Protected,
    SoftEvidence,
    overlaps_any,
)
from sightline.selectors.grid import Grid
from sightline.selectors.masks import Masks, read_masks
from sightline.selectors.scores import (
    centre_prior,
    centres,
    focus_terms,
    order,
    overlap_score,
    rank,
    relevance,
    seeded,
    uniqueness,
)
from sightline.selectors.spatial_aware import SpatialAware
from sightline.selectors.spreading import farthest, grid, nearest
from sightline.selectors.target import FullPrompt, Target
from sightline.selectors.unpruned import Full
from tests.refusals import Refused
from tests.unit.selectors.views import made

SELECTORS = """
    random grid grid:cells=truncated center evidence_only evidence_only:padding=raster anti_evidence
    anti_evidence:padding=raster target target:score=overlap prompt bottom shuffled target_grid protected
    center_protected soft_evidence spatial_aware hybrid hybrid:score=overlap rel_hybrid soft_relboost
    protected_rel_hybrid rise rise:neighbours=one_raster rise:score=overlap,neighbours=evidence coverage_greedy
    coverage_greedy:score=overlap,neighbours=none
"""
BOXES = {
    "none": [],
    "one": [[0.41, 0.305, 0.47, 0.333]],
    "pair": [[0.05, 0.05, 0.4, 0.4], [0.6, 0.6, 0.95, 0.95]],
    "outside": [[1.2, 1.2, 1.5, 1.4]],
    "touching": [[0.5, 0.5, 0.5, 0.75]],
    "whole": [[0.0, 0.0, 1.0, 1.0]],
    "many": [[i / 40, i / 50, i / 40 + 0.03, i / 50 + 0.02] for i in range(30)],
}
LAYOUTS = {
    "grid": (grid_cells(9, 7), ((9, 7),)),
    "line": (grid_cells(1, 40), ((1, 40),)),
    "crop": (cropped_cells(8, 8, (640, 200), 336, (336, 336)), ((8, 8),)),
    "tiles": (tile_cells((3, 2), 7, 4, 4), ((4, 4),) * 7),
}


def make_view(layout: str = "grid", boxes: str = "one", *, query: int = 3, probe_id: str = "p") -> TokenView:
    cells, blocks = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(len(cells))
    return TokenView(
        tokens=torch.randn(len(cells), 16, generator=generator),
        cells=torch.from_numpy(cells),
        layout=blocks,
        query=torch.randn(query, 16, generator=generator),
        boxes=torch.tensor(BOXES[boxes], dtype=torch.float64).reshape(-1, 4),
        key="p:orig:0.4:s",
        probe_id=probe_id,
    )


def kept(selector: Any, view: TokenView, k: int = 20) -> list[int]:
    found: list[int] = selector.select(view, k).anchors.tolist()
    return found


@pytest.mark.parametrize("text", SELECTORS.split())
def test_any_budget_boxes_and_layout_give_that_many_distinct_ascending_indices(text: str) -> None:
    """The same when asked twice, and without a change of what is looked at."""
    selector = made(text)
    assert (type(selector).__doc__ or "").splitlines()[0].endswith(".")
    assert selector.needs == frozenset()
    assert selector.query in ("target", "prompt", "none")
    for layout, (cells, _) in LAYOUTS.items():
        n = len(cells)
        for boxes in BOXES:
            view = make_view(layout, boxes)
            for k in (1, 2, 3, n // 3, n // 2 + 1, n - 1, n):
                anchors = selector.select(view, k).anchors
                assert anchors.dtype == torch.int64
                assert len(anchors) == k, (layout, boxes, k)
                assert anchors.tolist() == sorted(set(anchors.tolist()) & set(range(n))), (layout, boxes, k)
                assert torch.equal(selector.select(view, k).anchors, anchors)
            untouched = make_view(layout, boxes)
            for name in ("tokens", "cells", "query", "boxes"):
                assert torch.equal(getattr(view, name), getattr(untouched, name)), name


# Scores, and what they are drawn and read by.


def test_equal_scores_go_to_the_lower_index_and_ties_of_one_key_to_the_next() -> None:
    assert rank(torch.tensor([1.0, 2.0, 2.0, 1.0])).tolist() == [1, 2, 0, 3]
    first, second = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([2.0, 9.0, 1.0, 1.0])
    assert order(first, second).tolist() == [1, 2, 3, 0]


def test_relevance_by_hand_of_zero_tokens_and_in_a_batch() -> None:
    tokens = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
    query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    nearest_two = torch.tensor([0.5, 0.5, 0.5**0.5])
    norms = torch.tensor([1.0, 2.0, 18.0**0.5])
    expected = 0.85 * (nearest_two - 0.5) / (0.5**0.5 - 0.5) + 0.15 * (norms - 1.0) / (18.0**0.5 - 1.0)
    torch.testing.assert_close(relevance(tokens, query), expected)
    score = relevance(torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0]]))
    assert torch.isfinite(score).all()
    assert score[1] > score[0]
    tokens, query = torch.randn(3, 20, 8), torch.randn(3, 4, 8)
    for i, together in enumerate(relevance(tokens, query)):
        torch.testing.assert_close(together, relevance(tokens[i], query[i]))


def test_tiles_are_not_neighbours() -> None:
    tokens = torch.tensor([[1.0, 0.0]] * 4 + [[0.0, 1.0]] * 4)
    assert uniqueness(tokens, ((2, 2), (2, 2))).tolist() == [0.0] * 8
    assert uniqueness(tokens, ((2, 4),)).tolist() == [1.0, 0.0, 0.0, 1.0] * 2


def test_the_overlap_score_falls_back_to_the_centre() -> None:
    cells = torch.from_numpy(grid_cells(3, 3))
    assert centre_prior(cells).argmax() == 4
    for boxes in (torch.zeros(0, 4, dtype=torch.float64), torch.tensor([[2.0, 2.0, 3.0, 3.0]], dtype=torch.float64)):
        assert torch.equal(overlap_score(cells, boxes), centre_prior(cells))


def test_nearest_equals_brute_force() -> None:
    for each, _ in LAYOUTS.values():
        cells = torch.from_numpy(each)
        sources = cells[torch.randperm(len(cells))[: len(cells) // 3]]
        (x, y), (sx, sy) = centres(cells), centres(sources)
        across, down = x[:, None] - sx, y[:, None] - sy
        assert torch.equal(nearest(cells, sources), (across * across + down * down).amin(dim=1))


def test_the_query_follows_the_score() -> None:
    assert [Target(score=s).query for s in ("target", "prompt", "overlap")] == ["target", "prompt", "none"]
    assert FullPrompt().query == "prompt"


def test_without_boxes_or_query_another_rule_is_left() -> None:
    assert kept(Target(), make_view(query=0), 9) == kept(Center(), make_view(query=0), 9)
    view = make_view(boxes="none")
    for selector in (Protected(), CenterProtected(), SoftEvidence()):
        assert kept(selector, view) == kept(Target(), view)
    assert kept(SpatialAware(), view) == kept(Grid(), view)


def test_focus_terms_keep_spelling_and_order() -> None:
    assert focus_terms("What is the Total total of item_7 b?") == ["Total", "item", "7"]
    assert focus_terms("  of the ") == ["of the"]
    assert len(focus_terms("one two three four five six seven eight nine ten")) == 8


def test_draws_are_seeded_as_published_by_key_seed_and_the_published_names() -> None:
    assert seeded(13, "a:orig:0.3:random").random() == seeded(13, "a:orig:0.3:random").random()
    digest = int("32785d4a7137c10b", 16)  # first 16 digits of sha1("13:x")
    assert seeded(13, "x").getstate() == random.Random(digest).getstate()
    view = make_view()
    masks = [(Random(), view), (Random(seed=18), view), (Random(), replace(view, key="q:orig:0.4:random"))]
    drawn, *others = (kept(*each) for each in masks)
    assert drawn not in others
    names = [Shuffled(score=s).salt for s in ("target", "prompt", "overlap")]
    assert names == ["target_embed_shuffled_topk", "embed_shuffled_topk", "shuffled_topk"]
    assert [each.salt for each in (Random(), Target(), EvidenceOnly())] == ["random", "target", "evidence_only"]


# Where tokens lie.


def test_spatial_aware_has_the_papers_shares_and_spreads_what_boxes_and_context_leave() -> None:
    assert (SpatialAware().core, SpatialAware().context) == (0.35, 0.25)
    view = make_view(boxes="pair")
    scores = torch.zeros(63, dtype=torch.float64)
    chosen = SpatialAware().choose(scores, view, 20)
    boxed, rest = chosen[:12], chosen[12:]  # round(0.35 * 20) + round(0.25 * 20), then the 40 % that are left
    free = torch.tensor([token for token in range(63) if token not in boxed.tolist()])
    assert torch.equal(rest, free[grid(view.cells[free], 8)])
    assert chosen.unique().shape == (20,)
    published = SpatialAware(**SpatialAware.artifact["*"]).choose(scores, view, 20)
    assert torch.equal(published[:12], boxed)
    assert torch.equal(published[12:], farthest(view.cells, boxed, 8)), "the artifact takes the farthest tokens"
    assert len(set(kept(SpatialAware(core=0.5, context=0.5), view))) == 20, "nothing may be left"


def test_a_covering_grid_keeps_one_token_in_every_rectangle() -> None:
    cells = torch.from_numpy(grid_cells(24, 24))
    x, y = centres(cells)
    for k in (5, 12, 30, 58, 90):
        chosen, side = grid(cells, k), math.ceil(math.sqrt(k))
        counts = [(r + 1) * k // side - r * k // side for r in range(side)]
        rows = (y[chosen] * side).long()
        assert torch.bincount(rows, minlength=side).tolist() == counts
        for row, columns in enumerate(counts):
            inside = (x[chosen][rows == row] * columns).long()
            assert sorted(inside.tolist()) == list(range(columns))
    truncated, covering = (float(cells[grid(cells, 72, kind), 3].max()) for kind in ("truncated", "covering"))
    assert truncated < 0.9 < covering


def test_empty_rectangles_of_a_covering_grid_are_filled_close_by() -> None:
    cells = torch.from_numpy(grid_cells(3, 20))
    chosen = grid(cells, 45)
    assert torch.bincount(chosen // 20, minlength=3).min() >= 12
    assert nearest(cells, cells[chosen]).max() <= 0.05**2 + 1e-12  # a dropped token has a kept one beside it


def test_a_covering_grid_spans_what_a_crop_shows() -> None:
    chosen = grid(torch.from_numpy(LAYOUTS["crop"][0]), 16)
    assert sorted((chosen // 8 // 2 * 4 + chosen % 8 // 2).tolist()) == list(range(16))


def test_evidence_comes_first_or_last() -> None:
    view = make_view()
    assert set(torch.nonzero(overlaps_any(view)).flatten().tolist()) <= set(kept(EvidenceOnly(), view))
    many = make_view(boxes="many")
    hit = overlaps_any(many)
    free = int((~hit).sum())
    for k, evidence in ((free - 1, 0), (free + 2, 2)):
        assert int(hit[AntiEvidence().select(many, k).anchors].sum()) == evidence
    assert kept(Target(score="overlap"), many) == kept(EvidenceOnly(padding="raster"), many)
    assert kept(Bottom(score="overlap"), many) == kept(AntiEvidence(padding="raster"), many)


def test_padding_of_evidence_arms_does_not_favour_the_top_rows() -> None:
    view = make_view()
    for selector in (EvidenceOnly, AntiEvidence):
        keys = [f"p{i}:orig:0.3:{selector.name}" for i in range(40)]
        rows = torch.cat([selector().select(replace(view, key=key), 20).anchors // 7 for key in keys])
        assert 3.4 < rows.double().mean() < 4.6
        assert (selector(padding="raster").select(view, 20).anchors // 7).double().mean() < 2.5


# All tokens, and masks that were recorded.


def test_full_keeps_everything_asks_for_it_and_refuses_less(refused: Refused) -> None:
    assert Full().count("p", 63, Budget.ratio(0.3)) == 63
    assert kept(Full(), make_view(), 63) == list(range(63))
    refused("keeps all 63", Full().select, make_view(), 20)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    read_masks.cache_clear()
    yield tmp_path / "m.jsonl"
    read_masks.cache_clear()


def test_masks_replay_by_probe_id_and_variant_also_from_gzip(file: Path, refused: Refused) -> None:
    file.write_text('{"sample_id": "a:b", "kept_indices": [5, 3, 3]}\n\n{"id": "c", "kept_indices": [0]}\n')
    selector = Masks(str(file))
    assert selector.count("a:b", 63, Budget.ratio(1.0)) == 2
    assert kept(selector, make_view(probe_id="a:b"), 2) == [3, 5]
    assert kept(selector, make_view(probe_id="c"), 1) == [0]
    refused("keeps 1 token for probe 'c', not 4", selector.select, make_view(probe_id="c"), 4)
    packed = file.with_suffix(".jsonl.gz")
    with gzip.open(packed, "wt") as lines:
        for variant, index in (("selected", 1), ("removed", 2)):
            lines.write(json.dumps({"sample_id": "a", "mask": [index], "variant": variant}) + "\n")
    assert Masks(str(packed), field="mask", variant="removed").indices("a", 9) == (2,)
    refused("second mask for probe 'a'", Masks(str(packed), field="mask").indices, "a", 9)


@pytest.mark.parametrize(("row", "message"), [
    ('{"sample_id": "b", "kept_indices": [1]}', "no mask for probe 'a'"),
    ('{"sample_id": "a", "kept_indices": []}', "keeps no token"),
    ('{"sample_id": "a", "kept_indices": [63]}', "lists token 63"),
    ('{"sample_id": "a", "kept_indices": [-1, 2]}', "lists token -1"),
    ('{"sample_id": "a"}', "needs a string"),
    ('{"sample_id": "a", "kept_indices": [1.5]}', "other than integers"),
    ("[1]", "not a JSON object"),
    ("{", "not JSON lines"),
    (None, "cannot read"),
])  # fmt: skip
def test_masks_say_what_is_wrong(file: Path, row: str | None, message: str, refused: Refused) -> None:
    if row is not None:
        file.write_text(f"{row}\n")
    refused(message, Masks(str(file)).count, "a", 63, Budget.ratio(1.0))
