"""MMTok: a subset of patches that covers both the question's tokens and the image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import TAKEN, cover_fully, cover_lazily, gram, launch_cover, stack, unit
from sightline.selectors.scores import kernels_run


def coverage(
    tokens: Tensor, features: Tensor, text: Tensor, alpha: float, text_temp: float, visual_temp: float
) -> Tensor:
    """How much patch j covers item i, (N, T + N), from one image's tokens x (N, D), features c (N, C), text z (T, D).

    The T text tokens are covered by softmax_j(cos(z_i, x_j) / text_temp) / T, the N patches by
    alpha * softmax_j(cos(c_i, c_j) / visual_temp) / N.
    """
    n, texts = tokens.shape[0], text.shape[0]
    to_text = unit(tokens) @ unit(text).T
    to_image = gram(unit(features).unsqueeze(0))[0]
    logits = torch.cat([to_text / text_temp, to_image / visual_temp], dim=1)
    logits.nan_to_num_(0.0)  # one broken vector must not make every softmax NaN
    weight = logits.new_full((texts + n,), alpha / n)
    weight[:texts] = 1.0 / max(texts, 1)
    return torch.softmax(logits, dim=0).mul_(weight)


def mmtok_kept(covers: Sequence[Tensor], k: int, excluded: Tensor | None = None) -> Tensor:
    """B matrices (N, I), each with its own number of items -> (B, k) ascending, by the device's faster loop.

    ``excluded`` (B, N) marks patches that are never picked. Gains are summed in float64, where the number of images and
    of padded items cannot show.
    """
    alike = covers[0].new_ones(len(covers), len(covers[0]), dtype=torch.float64)
    barred = torch.zeros_like(alike) if excluded is None else torch.zeros_like(alike).masked_fill_(excluded, TAKEN)
    if covers[0].device.type == "cpu":
        picks = torch.stack([cover_lazily(*image, k) for image in zip(covers, alike, barred, strict=True)])
    else:
        # An item that nothing covers adds nothing to any gain.
        items = max(image.shape[1] for image in covers)
        padded = stack([torch.nn.functional.pad(image, (0, items - image.shape[1])) for image in covers])
        loop = launch_cover if kernels_run(padded, padded.shape[1]) else cover_fully
        picks = loop(padded, alike, barred, k)
    return picks.sort(dim=1).values


@SELECTORS.register("mmtok")
@dataclass(frozen=True)
class MMTok(BatchSelector):
    """Greedily picks the patches that together best cover the question's tokens and the whole image.

    Reference: "MMTok: Multimodal Coverage Maximization for Efficient Inference of VLMs" (2025).
    Needs: projected tokens, input embeddings of the question, penultimate vision features.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: zero-norm and NaN vectors have cosine 0; without question tokens only the image is covered; once
    nothing is left to cover, the lowest unpicked indices follow.

    Parameters
    ----------
    alpha: weight of covering the image against covering the question.
    text_temp, visual_temp: softmax temperatures of the two similarities.
    features: signal by which patches are compared with one another.
    """

    alpha: float = 0.5
    text_temp: float = 0.02
    visual_temp: float = 0.2
    features: str = "vision.hidden@-2"

    name: ClassVar[str] = "mmtok"
    query: ClassVar[QuerySpan] = "question"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"text_temp": (1e-12, inf), "visual_temp": (1e-12, inf)}
    official_ms: ClassVar[float] = 58.0

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({self.features})

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        """Views of one N; their questions may differ in length."""
        covers = [
            coverage(view.tokens, view.signals[self.features], view.query, self.alpha, self.text_temp, self.visual_temp)
            for view in views
        ]
        return [Selection(kept) for kept in mmtok_kept(covers, k)]
