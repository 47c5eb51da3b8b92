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
from sightline.errors import SightlineError
from sightline.geometry.cells import cropped_cells, grid_cells, tile_cells
from sightline.selectors.controls import Bottom, Center, Random, Shuffled
from sightline.selectors.coverage_greedy import CoverageGreedy
from sightline.selectors.evidence import (
    AntiEvidence,
    CenterProtected,
    EvidenceOnly,
    Protected,
    SoftEvidence,
    overlaps_any,
)
from sightline.selectors.grid import Grid, TargetGrid
from sightline.selectors.hybrid import Hybrid, ProtectedRelHybrid, RelHybrid, SoftRelboost
from sightline.selectors.masks import Masks, read_masks
from sightline.selectors.rise import Rise
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
from tests.golden_e2e.reference import from_artifact

SELECTORS: list[Any] = [
    Random(),
    Grid(),
    Grid(cells="truncated"),
    Center(),
    EvidenceOnly(),
    EvidenceOnly(padding="raster"),
    AntiEvidence(),
    AntiEvidence(padding="raster"),
    Target(),
    Target(score="overlap"),
    FullPrompt(),
    Bottom(),
    Shuffled(),
    TargetGrid(),
    Protected(),
    CenterProtected(),
    SoftEvidence(),
    SpatialAware(),
    Hybrid(),
    Hybrid(score="overlap"),
    RelHybrid(),
    SoftRelboost(),
    ProtectedRelHybrid(),
    Rise(),
    Rise(neighbours="one_raster"),
    Rise(score="overlap", neighbours="evidence"),
    CoverageGreedy(),
    CoverageGreedy(score="overlap", neighbours="none"),
]

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


def make_view(
    layout: str = "grid", boxes: str = "one", *, query: int = 3, key: str = "p:orig:0.4:s", probe_id: str = "p"
) -> TokenView:
    cells, blocks = LAYOUTS[layout]
    generator = torch.Generator().manual_seed(len(cells))
    return TokenView(
        tokens=torch.randn(len(cells), 16, generator=generator),
        cells=torch.from_numpy(cells),
        layout=blocks,
        query=torch.randn(query, 16, generator=generator),
        boxes=torch.tensor(BOXES[boxes], dtype=torch.float64).reshape(-1, 4),
        key=key,
        probe_id=probe_id,
    )


def show(selector: Any) -> str:
    return repr(selector).split("(")[0] + "-" + ",".join(str(v) for v in vars(selector).values())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("selector", SELECTORS, ids=show)
def test_any_budget_and_boxes_give_that_many_distinct_ascending_indices(selector: Any, layout: str) -> None:
    for boxes in BOXES:
        view = make_view(layout, boxes)
        n = len(view.cells)
        for k in (1, 2, 3, n // 3, n // 2 + 1, n - 1, n):
            anchors = selector.select(view, k).anchors
            assert anchors.dtype == torch.int64
            kept = anchors.tolist()
            assert len(kept) == k, (boxes, k)
            assert kept == sorted(set(kept)), (boxes, k)
            assert kept[0] >= 0, (boxes, k)
            assert kept[-1] < n, (boxes, k)


@pytest.mark.parametrize("selector", SELECTORS, ids=show)
def test_selecting_twice_is_the_same_and_leaves_the_view_alone(selector: Any) -> None:
    view = make_view("tiles", "many")
    before = [t.clone() for t in (view.tokens, view.cells, view.query, view.boxes)]
    first, second = selector.select(view, 30).anchors, selector.select(view, 30).anchors
    assert torch.equal(first, second)
    for old, new in zip(before, (view.tokens, view.cells, view.query, view.boxes), strict=True):
        assert torch.equal(old, new)


@pytest.mark.parametrize("selector", SELECTORS, ids=show)
def test_states_what_it_is_in_one_line(selector: Any) -> None:
    line = (type(selector).__doc__ or "").splitlines()[0]
    assert line.endswith(".")
    assert selector.needs == frozenset()
    assert selector.query in ("target", "prompt", "none")


class TestScores:
    def test_equal_scores_go_to_the_lower_index(self) -> None:
        assert rank(torch.tensor([1.0, 2.0, 2.0, 1.0])).tolist() == [1, 2, 0, 3]

    def test_order_breaks_ties_key_by_key_then_by_index(self) -> None:
        first, second = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([2.0, 9.0, 1.0, 1.0])
        assert order(first, second).tolist() == [1, 2, 3, 0]

    def test_relevance_is_the_same_with_and_without_a_batch_dimension(self) -> None:
        tokens, query = torch.randn(3, 20, 8), torch.randn(3, 4, 8)
        together = relevance(tokens, query)
        for i in range(3):
            torch.testing.assert_close(together[i], relevance(tokens[i], query[i]))

    def test_zero_token_has_no_relevance_and_no_norm(self) -> None:
        tokens = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]])
        score = relevance(tokens, torch.tensor([[1.0, 0.0]]))
        assert torch.isfinite(score).all()
        assert score[1] > score[0]

    def test_relevance_by_hand(self) -> None:
        tokens = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 3.0]])
        query = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
        nearest_two = torch.tensor([0.5, 0.5, 0.5**0.5])
        norms = torch.tensor([1.0, 2.0, 18.0**0.5])
        expected = 0.85 * (nearest_two - 0.5) / (0.5**0.5 - 0.5) + 0.15 * (norms - 1.0) / (18.0**0.5 - 1.0)
        torch.testing.assert_close(relevance(tokens, query), expected)

    def test_tiles_are_not_neighbours(self) -> None:
        same, other = torch.tensor([[1.0, 0.0]] * 4), torch.tensor([[0.0, 1.0]] * 4)
        tokens = torch.cat([same, other])
        assert uniqueness(tokens, ((2, 2), (2, 2))).tolist() == [0.0] * 8
        assert uniqueness(tokens, ((2, 4),)).tolist() == [1.0, 0.0, 0.0, 1.0] * 2

    def test_overlap_score_falls_back_to_the_centre(self) -> None:
        cells = torch.from_numpy(grid_cells(3, 3))
        assert torch.equal(overlap_score(cells, torch.zeros(0, 4, dtype=torch.float64)), centre_prior(cells))
        assert centre_prior(cells).argmax() == 4
        outside = torch.tensor([[2.0, 2.0, 3.0, 3.0]], dtype=torch.float64)
        assert torch.equal(overlap_score(cells, outside), centre_prior(cells))

    def test_nearest_equals_brute_force(self) -> None:
        for layout in LAYOUTS:
            cells = torch.from_numpy(LAYOUTS[layout][0])
            sources = cells[torch.randperm(len(cells))[: len(cells) // 3]]
            (x, y), (sx, sy) = centres(cells), centres(sources)
            across, down = x[:, None] - sx, y[:, None] - sy
            assert torch.equal(nearest(cells, sources), (across * across + down * down).amin(dim=1))


class TestScoreSource:
    def test_query_follows_the_score(self) -> None:
        assert [Target(score=s).query for s in ("target", "prompt", "overlap")] == ["target", "prompt", "none"]
        assert FullPrompt().query == "prompt"

    def test_without_query_tokens_target_keeps_the_centre(self) -> None:
        view = make_view(query=0)
        assert torch.equal(Target().select(view, 9).anchors, Center().select(view, 9).anchors)

    @pytest.mark.parametrize("selector", [Protected(), CenterProtected(), SoftEvidence()], ids=show)
    def test_without_boxes_it_is_target(self, selector: Any) -> None:
        view = make_view(boxes="none")
        assert torch.equal(selector.select(view, 20).anchors, Target().select(view, 20).anchors)

    def test_without_boxes_spatial_aware_is_grid(self) -> None:
        view = make_view(boxes="none")
        assert torch.equal(SpatialAware().select(view, 20).anchors, Grid().select(view, 20).anchors)


class TestSpatialAware:
    def test_the_shares_are_those_of_the_paper(self) -> None:
        assert (SpatialAware().core, SpatialAware().context) == (0.35, 0.25)

    def test_what_boxes_and_context_leave_is_a_grid_over_the_free_tokens(self) -> None:
        view = make_view(boxes="pair")
        scores = torch.zeros(view.cells.shape[0], dtype=torch.float64)
        chosen = SpatialAware().choose(scores, view, 20)
        kept, rest = chosen[:12], chosen[12:]  # round(0.35 * 20) + round(0.25 * 20), then the 40 % that are left
        free = torch.tensor([token for token in range(view.cells.shape[0]) if token not in kept.tolist()])
        assert torch.equal(rest, free[grid(view.cells[free], 8)])
        assert chosen.unique().shape == (20,)

    def test_the_artifact_takes_the_farthest_tokens_instead(self) -> None:
        view = make_view(boxes="pair")
        scores = torch.zeros(view.cells.shape[0], dtype=torch.float64)
        published = SpatialAware(**SpatialAware.artifact["*"])
        chosen = published.choose(scores, view, 20)
        assert torch.equal(chosen[:12], SpatialAware().choose(scores, view, 20)[:12])
        assert torch.equal(chosen[12:], farthest(view.cells, chosen[:12], 8))

    def test_boxes_and_context_may_take_the_whole_budget(self) -> None:
        view = make_view(boxes="pair")
        assert SpatialAware(core=0.5, context=0.5).select(view, 20).anchors.unique().shape == (20,)


class TestDraws:
    def test_published_seeding(self) -> None:
        assert seeded(13, "a:orig:0.3:random").random() == seeded(13, "a:orig:0.3:random").random()
        digest = int("32785d4a7137c10b", 16)  # first 16 digits of sha1("13:x")
        assert seeded(13, "x").getstate() == random.Random(digest).getstate()

    def test_key_and_seed_change_the_mask(self) -> None:
        view = make_view()
        drawn = Random().select(view, 20).anchors
        assert not torch.equal(drawn, Random(seed=18).select(view, 20).anchors)
        assert not torch.equal(drawn, Random().select(replace(view, key="q:orig:0.4:random"), 20).anchors)

    def test_salts_are_the_published_names(self) -> None:
        assert Random().salt == "random"
        names = [Shuffled(score=s).salt for s in ("target", "prompt", "overlap")]
        assert names == ["target_embed_shuffled_topk", "embed_shuffled_topk", "shuffled_topk"]
        assert Target().salt == "target"
        assert EvidenceOnly().salt == "evidence_only"


class TestGrid:
    def test_covering_keeps_one_token_in_every_rectangle(self) -> None:
        cells = torch.from_numpy(grid_cells(24, 24))
        x, y = centres(cells)
        for k in (5, 12, 30, 58, 90):
            kept = grid(cells, k)
            side = math.ceil(math.sqrt(k))
            counts = [(r + 1) * k // side - r * k // side for r in range(side)]
            rows = (y[kept] * side).long()
            assert torch.bincount(rows, minlength=side).tolist() == counts
            for row, columns in enumerate(counts):
                inside = (x[kept][rows == row] * columns).long()
                assert sorted(inside.tolist()) == list(range(columns))

    def test_truncated_leaves_the_bottom_out_and_covering_does_not(self) -> None:
        cells = torch.from_numpy(grid_cells(24, 24))
        assert float(cells[grid(cells, 72, "truncated"), 3].max()) < 0.9
        assert float(cells[grid(cells, 72, "covering"), 3].max()) > 0.9

    def test_empty_rectangles_are_filled_close_by(self) -> None:
        cells = torch.from_numpy(grid_cells(3, 20))
        kept = grid(cells, 45)
        assert torch.bincount(kept // 20, minlength=3).min() >= 12
        assert nearest(cells, cells[kept]).max() <= 0.05**2 + 1e-12  # a dropped token has a kept one beside it

    def test_covering_spans_what_a_crop_shows(self) -> None:
        cells = torch.from_numpy(LAYOUTS["crop"][0])
        kept = grid(cells, 16)
        assert sorted((kept // 8 // 2 * 4 + kept % 8 // 2).tolist()) == list(range(16))


class TestEvidenceArms:
    def test_evidence_only_keeps_all_overlapping_tokens_first(self) -> None:
        view = make_view("grid", "one")
        evidence = set(torch.nonzero(overlaps_any(view)).squeeze(-1).tolist())
        assert evidence <= set(EvidenceOnly().select(view, 20).anchors.tolist())
        few = EvidenceOnly().select(make_view("grid", "whole"), 5).anchors
        assert len(few) == 5

    def test_anti_evidence_avoids_overlap_while_it_can(self) -> None:
        view = make_view("grid", "many")
        hit = overlaps_any(view)
        free = int((~hit).sum())
        assert not hit[AntiEvidence().select(view, free - 1).anchors].any()
        assert int(hit[AntiEvidence().select(view, free + 2).anchors].sum()) == 2

    def test_random_padding_does_not_favour_the_top_rows(self) -> None:
        view = make_view("grid", "one")
        for selector in (EvidenceOnly, AntiEvidence):
            rows = [
                selector().select(replace(view, key=f"p{i}:orig:0.3:{selector.name}"), 20).anchors // 7
                for i in range(40)
            ]
            assert 3.4 < torch.cat(rows).double().mean() < 4.6
            assert (selector(padding="raster").select(view, 20).anchors // 7).double().mean() < 2.5


class TestFull:
    def test_keeps_everything_and_asks_for_it(self) -> None:
        view = make_view()
        assert Full().count("p", 63, Budget.ratio(0.3)) == 63
        assert Full().select(view, 63).anchors.tolist() == list(range(63))

    def test_refuses_a_smaller_budget(self) -> None:
        with pytest.raises(SightlineError, match="keeps all 63"):
            Full().select(make_view(), 20)


class TestMasks:
    @pytest.fixture(autouse=True)
    def _fresh(self) -> Iterator[None]:
        read_masks.cache_clear()
        yield
        read_masks.cache_clear()

    def write(self, path: Path, *rows: Any) -> str:
        path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + "\n")
        return str(path)

    def test_replays_by_probe_id_with_colons(self, tmp_path: Path) -> None:
        file = self.write(
            tmp_path / "m.jsonl", {"sample_id": "a:b", "kept_indices": [5, 3, 3]}, "", {"id": "c", "kept_indices": [0]}
        )
        selector = Masks(file)
        assert selector.count("a:b", 63, Budget.ratio(1.0)) == 2
        assert selector.select(make_view(probe_id="a:b"), 2).anchors.tolist() == [3, 5]
        assert selector.select(make_view(probe_id="c"), 1).anchors.tolist() == [0]

    def test_reads_gzip_and_tells_variants_apart(self, tmp_path: Path) -> None:
        path = tmp_path / "m.jsonl.gz"
        with gzip.open(path, "wt") as file:
            for variant, index in (("selected", 1), ("removed", 2)):
                file.write(json.dumps({"sample_id": "a", "mask": [index], "variant": variant}) + "\n")
        assert Masks(str(path), field="mask", variant="removed").indices("a", 9) == (2,)
        with pytest.raises(SightlineError, match="second mask for probe 'a'"):
            Masks(str(path), field="mask").indices("a", 9)

    @pytest.mark.parametrize(
        ("row", "message"),
        [
            ({"sample_id": "b", "kept_indices": [1]}, "no mask for probe 'a'"),
            ({"sample_id": "a", "kept_indices": []}, "keeps no token"),
            ({"sample_id": "a", "kept_indices": [63]}, "lists token 63"),
            ({"sample_id": "a", "kept_indices": [-1, 2]}, "lists token -1"),
            ({"sample_id": "a"}, "needs a string"),
            ({"sample_id": "a", "kept_indices": [1.5]}, "other than integers"),
            ("[1]", "not a JSON object"),
            ("{", "not JSON lines"),
        ],
    )
    def test_says_what_is_wrong(self, tmp_path: Path, row: Any, message: str) -> None:
        with pytest.raises(SightlineError, match=message):
            Masks(self.write(tmp_path / "m.jsonl", row)).count("a", 63, Budget.ratio(1.0))

    def test_missing_file_and_other_budget(self, tmp_path: Path) -> None:
        with pytest.raises(SightlineError, match="cannot read"):
            Masks(str(tmp_path / "nothing.jsonl")).count("a", 63, Budget.ratio(1.0))
        file = self.write(tmp_path / "m.jsonl", {"sample_id": "a", "kept_indices": [1]})
        with pytest.raises(SightlineError, match="keeps 1 tokens for probe 'a', not 4"):
            Masks(file).select(make_view(probe_id="a"), 4)


class TestArtifactNames:
    def test_prefix_is_the_score_source(self) -> None:
        assert from_artifact("target_embed_topk")[0] == "target"
        assert from_artifact("embed_topk") == ("prompt", {"score": "prompt", "weight": 0.85, "top": 2})
        assert from_artifact("topk") == ("evidence_only", {"padding": "raster"})
        assert from_artifact("bottomk") == ("anti_evidence", {"padding": "raster"})
        assert from_artifact("embed_random", seed=5) == ("random", {"seed": 5, "salt": "embed_random"})

    def test_settings_reach_the_selector(self) -> None:
        name, arguments = from_artifact("embed_grid_topk", hybrid_core_ratio=0.25)
        assert (name, arguments["reserve"], arguments["cells"]) == ("target_grid", 0.25, "truncated")
        assert from_artifact("coverage_greedy", evidence_boost=0.7)[1]["boost"] == 0.7
        assert from_artifact("rise", backbone="qwen3_vl")[1]["neighbours"] == "evidence"

    def test_bare_topk_is_evidence_only(self) -> None:
        view = make_view(boxes="many")
        overlap = Target(score="overlap").select(view, 20).anchors
        assert torch.equal(overlap, EvidenceOnly(padding="raster").select(view, 20).anchors)
        least = Bottom(score="overlap").select(view, 20).anchors
        assert torch.equal(least, AntiEvidence(padding="raster").select(view, 20).anchors)

    def test_unknown_name(self) -> None:
        with pytest.raises(SightlineError, match="not a selector of the artifact"):
            from_artifact("embed_nonsense")


def test_focus_terms_keep_spelling_and_order() -> None:
    assert focus_terms("What is the Total total of item_7 b?") == ["Total", "item", "7"]
    assert focus_terms("  of the ") == ["of the"]
    assert len(focus_terms("one two three four five six seven eight nine ten")) == 8
