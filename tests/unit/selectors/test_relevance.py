"""Methods that rank by relevance, by a graph of tokens or by pixels: AnchorPrune, G-Prune, PixelPrune."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.backbones.signals import pixels_of_tokens
from sightline.errors import SightlineError
from sightline.selectors.anchorprune import AnchorPrune, AnchorPruneQwen, anchorprune_order
from sightline.selectors.gprune import GPrune, flow_scores
from sightline.selectors.pixelprune import PixelPrune, prediction_errors
from tests.unit.selectors.views import scene, view


def by_definition(
    relevance: torch.Tensor,
    features: torch.Tensor,
    importance: torch.Tensor,
    k: int,
    k_min: int,
    tau: float,
    patience: int,
) -> tuple[list[int], int]:
    unit = features.double() / features.double().norm(dim=1, keepdim=True)
    distance = 1.0 - unit @ unit.T
    ranked = sorted(range(len(unit)), key=lambda i: -float(relevance[i]))
    reference, picks, novel = ranked[:k_min], ranked[:k_min], 0
    for token in ranked[k_min : max(k_min, k // 2)]:
        picks = [*picks, token]
        novel += min(float(distance[token, j]) for j in reference) > tau
        if novel == patience:
            break
    length = len(picks)
    while len(picks) < k:
        score = [float(importance[i]) * min(1.0, *(float(distance[i, j]) for j in picks)) for i in range(len(unit))]
        picks = [*picks, max((i for i in range(len(unit)) if i not in picks), key=lambda i: (score[i], -i))]
    return picks, length


@pytest.mark.parametrize(("k_min", "tau", "patience"), [(4, 0.2, 3), (4, 0.7, 2), (4, 1.5, 3), (25, 0.2, 3)])
def test_picks_follow_the_definition(k_min: int, tau: float, patience: int) -> None:
    torch.manual_seed(1)
    relevance, features, importance = torch.rand(2, 60), torch.randn(2, 60, 8) + 0.4, torch.rand(2, 60)
    order, length = anchorprune_order(relevance, features, importance, features, 30, k_min, tau=tau, patience=patience)
    for image in range(2):
        expected = by_definition(relevance[image], features[image], importance[image], 30, k_min, tau, patience)
        assert (order[image].tolist(), int(length[image])) == expected


def clip_signals(n: int) -> dict[str, torch.Tensor]:
    return {
        "clip.image": torch.randn(n, 8),
        "clip.text": torch.randn(1, 8),
        "vision.hidden@-2": torch.randn(n, 16),
        "vision.cls_attention@-2": torch.rand(4, n),
    }


def test_a_batch_chooses_as_its_images_do_alone() -> None:
    torch.manual_seed(2)
    views = [view(torch.randn(50, 8), signals=clip_signals(50)) for _ in range(3)]
    for one, v in zip(AnchorPrune().select_many(views, 20), views, strict=True):
        assert torch.equal(one.anchors, AnchorPrune().select(v, 20).anchors)


def test_the_qwen_form_batches_questions_of_different_length() -> None:
    torch.manual_seed(3)
    views = [
        view(torch.randn(50, 8), query=torch.randn(length, 8), signals={"vision.received@-1": torch.rand(50)})
        for length in (2, 7, 0)
    ]
    for aggregate in ("max", "mean"):
        selector = AnchorPruneQwen(aggregate=aggregate)
        for one, v in zip(selector.select_many(views, 20), views, strict=True):
            assert torch.equal(one.anchors, selector.select(v, 20).anchors)


def test_without_importance_the_lowest_indices_fill_up() -> None:
    torch.manual_seed(4)
    signals = clip_signals(30)
    signals["vision.cls_attention@-2"] = torch.zeros(4, 30)
    signals["clip.text"] = -signals["clip.image"][29:]
    anchors = AnchorPrune(k_min=1, max_ratio=0.0).select(view(torch.zeros(30, 8), signals=signals), 6).anchors
    assert anchors.tolist() == [0, 1, 2, 3, 4, 29]


def test_zero_tokens_and_duplicates_still_give_k_distinct_ones() -> None:
    torch.manual_seed(5)
    signals = clip_signals(30)
    for name in ("clip.image", "vision.hidden@-2"):
        signals[name][:10], signals[name][10:20] = 0.0, signals[name][10].clone()
    assert len(AnchorPrune().select(view(torch.zeros(30, 8), signals=signals), 29).anchors.unique()) == 29


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(SightlineError, match="patience"):
        AnchorPrune(patience=0)
    with pytest.raises(SightlineError, match="max_ratio"):
        AnchorPruneQwen(max_ratio=2.0)
    with pytest.raises(SightlineError, match="aggregate"):
        AnchorPruneQwen(aggregate="sum")  # type: ignore[arg-type]


def test_flow_equals_the_matrix_power() -> None:
    tokens = scene(0).tokens + 1.0
    unit = tokens / tokens.norm(dim=1, keepdim=True)
    cosine = unit @ unit.T
    logits = torch.where(cosine < 0.5, -5000.0, cosine / 0.03)
    flow = torch.softmax(logits, dim=1)
    expected = tokens.norm(dim=1) @ torch.linalg.matrix_power(flow, 5) / (flow > 0).sum(dim=1)
    torch.testing.assert_close(flow_scores(tokens[None], 0.5, 0.03, 5)[0], expected)


def test_unconnected_tokens_keep_their_own_norm() -> None:
    tokens = torch.diag(torch.tensor([3.0, 1.0, 2.0]))
    assert flow_scores(tokens[None], 0.5, 0.03, 5)[0].tolist() == [3.0, 1.0, 2.0]


def test_a_cosine_at_the_threshold_is_an_edge() -> None:
    tokens = torch.tensor([[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -1.0]])  # cosine exactly one half
    connected = flow_scores(tokens[None], 0.5, 1.0, 1)[0]
    apart = flow_scores(tokens[None], 0.5001, 1.0, 1)[0]
    assert connected.tolist() == [1.0, 1.0]
    assert apart.tolist() == [2.0, 2.0]


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(SightlineError, match="temperature"):
        GPrune(temperature=0.0)


def kept_by_rule(pixels: np.ndarray, tolerance: float) -> list[int]:
    """The published rule in its plain form: walk over the grid, predict, keep what the prediction misses."""
    rows, columns, _ = pixels.shape

    def alike(u: np.ndarray, v: np.ndarray) -> bool:
        return bool(np.abs(u - v).max() <= tolerance)

    kept = [0]
    for r in range(rows):
        for c in range(columns):
            if r == c == 0:
                continue
            guess = pixels[r, c - 1] if c else pixels[r - 1, c]
            if r and c:
                beside, above, corner = pixels[r, c - 1], pixels[r - 1, c], pixels[r - 1, c - 1]
                guess = above if alike(corner, beside) and not alike(corner, above) else beside
            if not alike(pixels[r, c], guess):
                kept.append(r * columns + c)
    return kept


def page(seed: int, rows: int = 9, columns: int = 11) -> np.ndarray:
    """A page of one colour with rectangles of others, (rows, columns, 6)."""
    drawn = np.random.default_rng(seed)
    sheet = np.zeros((rows, columns, 6), dtype=np.float32)
    for colour in range(1, 4):
        top, left = int(drawn.integers(rows - 2)), int(drawn.integers(columns - 2))
        sheet[top : top + int(drawn.integers(1, 5)), left : left + int(drawn.integers(1, 6))] = colour
    return sheet


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_at_its_own_count_the_choice_is_the_published_rule(seed: int, tolerance: float) -> None:
    sheet = page(seed)
    rows, columns, _ = sheet.shape
    view = scene(0, rows, columns)
    view = replace(view, signals={"image.pixels": torch.from_numpy(sheet).flatten(0, 1)})
    expected = kept_by_rule(sheet, tolerance)
    assert 1 < len(expected) < rows * columns
    assert PixelPrune(tolerance).select(view, len(expected)).anchors.tolist() == expected


def test_a_rectangle_costs_its_corners_where_edges_are_seen() -> None:
    """A dark rectangle on paper, worked by hand: beside the first token, where it begins, where its first row ends, and
    where the paper begins again below its left side. Below its right corner the left neighbour predicts paper."""
    sheet = torch.zeros(5, 6, 1)
    sheet[1:3, 2:4] = 7.0
    errors = prediction_errors(sheet.flatten(0, 1), ((5, 6),), 0.0)
    assert torch.nonzero(errors).flatten().tolist() == [0, 6 + 2, 6 + 4, 18 + 2]


def test_tiles_predict_nothing_of_one_another() -> None:
    pixels = torch.zeros(8, 3)
    assert torch.isinf(prediction_errors(pixels, ((2, 2), (2, 2)), 0.0)).tolist() == [True, *[False] * 3] * 2


def test_blocks_of_pixels_lie_where_their_tokens_do() -> None:
    tiles = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    blocks = pixels_of_tokens(tiles, ((2, 3), (2, 3)))
    assert blocks.shape == (12, 12)
    assert torch.equal(blocks[6 + 4], tiles[1, :, 2:4, 2:4].flatten())
    patches = torch.arange(24.0).view(8, 3)
    assert torch.equal(pixels_of_tokens(patches, ((1, 2),)), patches.view(2, 12))


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(SightlineError, match="tolerance"):
        PixelPrune(-1.0)
