from __future__ import annotations

import pytest
import torch

from sightline.core.selection import Selection
from sightline.errors import SightlineError
from sightline.selectors.visionzip import VisionZip, VisionZipQwen, merge_plan, split_budget
from tests.unit.selectors.views import view


def clip_signals(n: int) -> dict[str, torch.Tensor]:
    return {"vision.cls_attention@-2": torch.rand(4, n), "vision.key@-2": torch.randn(4, n, 8)}


def qwen_signals(n: int) -> dict[str, torch.Tensor]:
    return {"vision.received@-1": torch.rand(n), "vision.key@-1": torch.randn(4, n, 8)}


def test_the_merge_follows_the_definition() -> None:
    torch.manual_seed(1)
    salience, metric, hidden = torch.rand(40), torch.randn(40, 6), torch.randn(40, 5)
    dominant = sorted(sorted(range(40), key=lambda i: -float(salience[i]))[:12])
    rest = [i for i in range(40) if i not in dominant]
    targets = rest[::7][:4]
    joined: dict[int, list[int]] = {target: [] for target in targets}
    for i in (i for i in rest if i not in targets):
        cosines = [float(torch.cosine_similarity(metric[i], metric[t], dim=0)) for t in targets]
        joined[targets[cosines.index(max(cosines))]].append(i)
    expected = [hidden[i] for i in dominant] + [
        hidden[t] + hidden[members].mean(dim=0) if members else hidden[t] for t, members in joined.items()
    ]
    anchors, mix = merge_plan(salience[None], metric[None], 12, 4)
    assert anchors[0].tolist() == dominant + targets
    torch.testing.assert_close(mix[0] @ hidden, torch.stack(expected))


@pytest.mark.parametrize("k", [1, 2, 3, 10, 49, 50])
def test_the_class_token_counts_in_the_budget_and_has_no_cell(k: int) -> None:
    torch.manual_seed(2)
    selection = VisionZip().select(view(torch.zeros(50, 4), signals=clip_signals(50)), k)
    assert selection.merge_at == "vision"
    assert selection.mix is not None
    with_class = k > 1
    assert selection.mix.shape == (k, 50 + with_class)
    assert int((selection.anchors == -1).sum()) == with_class
    assert float(selection.mix[:, 50:].sum()) == with_class
    sources = selection.mix[:, :50] != 0
    assert int(sources.any(dim=0).sum()) == (50 if k > 2 else 1)
    assert bool((sources.sum(dim=0) <= 1).all())


def test_orders_differ_in_order_only() -> None:
    torch.manual_seed(3)
    v = view(torch.zeros(50, 4), signals=clip_signals(50))
    native, blocks, rank = (VisionZip(order=order).select(v, 20) for order in ("native", "blocks", "rank"))
    assert (native.native_order, blocks.native_order, rank.native_order) == (True, False, False)
    assert torch.equal(native.anchors, blocks.anchors)
    dominant, _ = split_budget(20, class_token=True)
    salience = v.signals["vision.cls_attention@-2"].sum(dim=0)
    leading = rank.anchors[1 : dominant + 1]
    assert torch.equal(leading.sort().values, blocks.anchors[1 : dominant + 1])
    assert bool((salience[leading].diff() <= 0).all())
    as_rows = lambda s: s.mix[s.anchors.argsort()]  # noqa: E731
    assert torch.equal(as_rows(rank), as_rows(blocks))


def rows(selection: Selection) -> torch.Tensor:
    return torch.zeros(0) if selection.mix is None else selection.mix


@pytest.mark.parametrize("k", [1, 2, 3, 17, 50])
def test_a_batch_merges_as_its_images_do_alone(k: int) -> None:
    torch.manual_seed(4)
    for selector, signals in ((VisionZip(), clip_signals), (VisionZipQwen(), qwen_signals)):
        views = [view(torch.zeros(50, 4), signals=signals(50)) for _ in range(3)]
        for one, v in zip(selector.select_many(views, k), views, strict=True):
            alone = selector.select(v, k)
            assert torch.equal(one.anchors, alone.anchors)
            assert torch.equal(rows(one), rows(alone))


def test_the_qwen_form_merges_projected_tokens_with_exhaustive_lineage() -> None:
    torch.manual_seed(5)
    v = view(torch.zeros(50, 4), signals=qwen_signals(50))
    selection = VisionZipQwen().select(v, 15)
    assert selection.merge_at == "tokens"
    assert selection.mix is not None
    assert bool((selection.mix != 0).any(dim=0).all())
    assert torch.equal(selection.anchors, selection.anchors.sort().values)
    assert VisionZipQwen().select(v, 2).mix is None
    assert VisionZipQwen().select(v, 50).anchors.tolist() == list(range(50))


def test_zero_keys_join_the_first_target_and_weights_stay_finite() -> None:
    signals = qwen_signals(30)
    signals["vision.key@-1"].zero_()
    selection = VisionZipQwen().select(view(torch.zeros(30, 4), signals=signals), 12)
    assert selection.mix is not None
    assert bool(selection.mix.isfinite().all())
    merged = (selection.mix != 0).sum(dim=1)
    assert int(merged.max()) == 30 - 12 + 1


def test_an_unknown_order_is_refused() -> None:
    with pytest.raises(SightlineError, match="order"):
        VisionZip(order="random")  # type: ignore[arg-type]
