"""VisionZip: dominant tokens stay, all others are merged into evenly spread contextual tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, ByModel, Parity, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosine, stack
from sightline.selectors.scores import minmax, rank

Order = Literal["native", "blocks", "rank"]


def split_budget(k: int, class_token: bool) -> tuple[int, int]:
    """(dominant, contextual) patches for K outputs: round(10 K / 64) contextual, at least 1, at least 1 dominant.

    Up to K = 2 nothing is merged. ``class_token`` sets one of the K outputs aside for it, but one patch always stays.
    """
    reserved = 1 if class_token else 0
    contextual = 0 if k <= 2 else min(max(1, round(k * 10 / 64)), k - 1 - reserved)
    return max(1, k - contextual - reserved), contextual


def merge_plan(
    salience: Tensor, metric: Tensor, dominant: int, contextual: int, ranked: bool = False
) -> tuple[Tensor, Tensor]:
    """salience (B, N), metric (B, N, d) -> anchors (B, K) and mixing weights (B, K, N), K = dominant + contextual.

    Dominant: the highest salience, each token alone, ascending (or from the highest down if ``ranked``). Of the rest,
    ascending, every floor(rest / contextual)-th token is a target; each other token joins the target with the most
    similar metric. Contextual output = target + mean of those that joined it.
    """
    images, n = salience.shape
    order = rank(salience)
    leading = order[:, :dominant] if ranked else order[:, :dominant].sort(dim=1).values
    rest = order[:, dominant:].sort(dim=1).values
    step = max(1, rest.shape[1] // max(1, contextual))
    targets = rest[:, : step * contextual : step]
    weights = torch.zeros(images, dominant + contextual, n, device=salience.device)
    if contextual:
        # float64: the order of summation, which depends on the batch, cannot change an assignment.
        keys = metric.double().gather(1, rest.unsqueeze(2).expand(-1, -1, metric.shape[2]))
        slot = cosine(keys, keys[:, : step * contextual : step]).argmax(dim=2)
        position = torch.arange(rest.shape[1], device=rest.device)
        joins = (position % step != 0) | (position >= step * contextual)
        joined = weights.new_zeros(images, contextual).scatter_add_(1, slot, joins.to(weights).expand_as(slot))
        share = torch.where(joins, joined.gather(1, slot).reciprocal(), 0.0)
        image = torch.arange(images, device=rest.device).unsqueeze(1)
        weights[image, dominant + slot, rest] = share
    anchors = torch.cat([leading, targets], dim=1)
    return anchors, weights.scatter_(2, anchors.unsqueeze(2), 1.0)


def with_class_token(anchors: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Puts the class token (source N, anchor -1) in front: (B, K), (B, K, N) -> (B, K + 1), (B, K + 1, N + 1)."""
    images, k, n = weights.shape
    mix = weights.new_zeros(images, k + 1, n + 1)
    mix[:, 0, n] = 1.0
    mix[:, 1:, :n] = weights
    return torch.cat([anchors.new_full((images, 1), -1), anchors], dim=1), mix


def received_salience(received: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
    """Attention that tokens receive (B, N) and their keys (B, H, N, d) -> salience (B, N) and metric (B, N, d)."""
    return minmax(at_least_float32(received), 1e-8), at_least_float32(keys).mean(dim=1)


@SELECTORS.register("visionzip")
@dataclass(frozen=True)
class VisionZip(BatchSelector):
    """Keeps the class token and the patches it looks at; merges all others into evenly spread ones with similar keys.

    Reference: Yang et al., "VisionZip: Longer is Better but Not Necessary in Vision Language Models" (CVPR 2025).
    Needs: class-token attention and keys of the penultimate vision layer, and its hidden states to mix.
    Parity: exact-index. The outputs are those of the public code; in its order only with ``order=blocks``, which is not
    the default.
    Acts: merges vision hidden states before the projector. From K = 3 on all N patches are in some lineage. The class
    token is one of the K outputs and has no cell; K = 1 keeps one patch and no class token.
    Degenerate inputs: a zero key is equally similar to every target and joins the first (published: a division by 0).

    Parameters
    ----------
    order: ``native`` is raster order; ``blocks`` is the published one (class token, dominant in raster order, then
        contextual); ``rank`` is the spatial-provenance audit's (class token, dominant by falling salience, contextual).
    """

    order: Order = "native"

    name: ClassVar[str] = "visionzip"
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"vision.cls_attention@-2", "vision.key@-2", "vision.hidden@-2", "vision.cls@-2"}
    )
    merges: ClassVar[bool] = True
    merges_vision: ClassVar[bool] = True
    artifact: ClassVar[ByModel] = {"*": {"order": "rank"}}
    official_ms: ClassVar[float] = 19.0

    def other_form(self, blocks: int) -> VisionZipQwen:
        return VisionZipQwen()

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        salience = stack([at_least_float32(view.signals["vision.cls_attention@-2"]).sum(dim=0) for view in views])
        metric = stack([at_least_float32(view.signals["vision.key@-2"]).mean(dim=0) for view in views])
        anchors, mix = merge_plan(salience, metric, *split_budget(k, class_token=True), ranked=self.order == "rank")
        if anchors.shape[1] < k:
            anchors, mix = with_class_token(anchors, mix)
        native = self.order == "native"
        return [Selection(a, m, merge_at="vision", native_order=native) for a, m in zip(anchors, mix, strict=True)]


@SELECTORS.register("visionzip_qwen")
@dataclass(frozen=True)
class VisionZipQwen(BatchSelector):
    """Keeps the tokens that receive most attention; merges all others into evenly spread ones with similar keys.

    Reference: Yang et al., "VisionZip: Longer is Better but Not Necessary in Vision Language Models" (CVPR 2025), as
    the spatial-provenance audit adapts it to Qwen3-VL, which has no class token.
    Needs: attention received and keys of the last vision block.
    Parity: exact-index, with the audit's adaptation. What VisionZip's authors published for Qwen2.5-VL is the same but
    for how K is split there, 65 to 5.
    Acts: merges projected tokens, and every DeepStack level by the same plan. From K = 3 on all N tokens are in some
    lineage; K = N changes nothing.
    Degenerate inputs: a zero key is equally similar to every target and joins the first; equal salience goes by index.
    """

    name: ClassVar[str] = "visionzip_qwen"
    form: ClassVar[str] = (
        "visionzip_qwen: received attention, and tokens merged behind the projector, as its authors published for "
        "Qwen2.5-VL"
    )
    parity: ClassVar[Parity] = "exact-index"
    needs: ClassVar[frozenset[str]] = frozenset({"vision.received@-1", "vision.key@-1"})
    merges: ClassVar[bool] = True
    official_ms: ClassVar[float] = 56.0

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        n = views[0].tokens.shape[0]
        if k >= n:
            return [Selection(torch.arange(n, device=view.tokens.device)) for view in views]
        salience, metric = received_salience(
            stack([view.signals["vision.received@-1"] for view in views]),
            stack([view.signals["vision.key@-1"] for view in views]),
        )
        dominant, contextual = split_budget(k, class_token=False)
        anchors, mix = merge_plan(salience, metric, dominant, contextual)
        anchors, native = anchors.sort(dim=1)
        if not contextual:
            return [Selection(a) for a in anchors]
        return [Selection(a, m[order]) for a, m, order in zip(anchors, mix, native, strict=True)]
