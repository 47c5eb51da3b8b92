"""CoIn: coverage of the feature space and informativeness of the token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Ranges, Selection, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosine, cosines, residual_greedy, stack
from sightline.selectors.scores import minmax


def coin_order(tokens: Tensor, text: Tensor, k: int, alpha: float, beta: float) -> Tensor:
    """tokens (B, N, D) and mean prompt embeddings (B, D) -> (B, k) in pick order.

    I = beta * minmax(|z|) + (1 - beta) * minmax(cos(z, text)). The first pick is argmax I; each later one maximises
    alpha * rho_i + (1 - alpha) * I_i, where rho_i is the length of z_i/|z_i| outside the span of the picks.
    """
    norms = at_least_float32(tokens).norm(dim=-1)
    alignment = torch.stack([cosine(image, words[None])[:, 0] for image, words in zip(tokens, text, strict=True)])
    informative = (beta * minmax(norms, 0.0) + (1.0 - beta) * minmax(alignment, 0.0)).double()
    return residual_greedy(
        cosines(tokens),
        start=torch.ones_like(informative),
        bias=(1.0 - alpha) * informative,
        k=k,
        first=informative.argmax(dim=1),
        scale=alpha,
        rooted=True,
    )


@SELECTORS.register("coin")
@dataclass(frozen=True)
class CoIn(BatchSelector):
    """Keeps informative tokens (long, aligned with the text) that point where the kept ones do not.

    Reference: Du et al., "CoIn" (2026). Its authors' code is not public: parity is with the spatial-provenance audit's
    implementation of the published algorithm, in the setting reported for LLaVA-1.5.
    Needs: projected tokens and input embeddings of the whole prompt text.
    Parity: exact-index, with the audit's implementation.
    Acts: deletes before the language model.
    Degenerate inputs: a zero-norm token keeps residual 1 and adds no direction; once the picks span all tokens (K above
    the rank) residuals are rounding noise and informativeness decides, with K distinct tokens all the same.

    Parameters
    ----------
    alpha: weight of the residual against informativeness.
    beta: weight of the token norm against text alignment within informativeness.
    """

    alpha: float = 0.9
    beta: float = 0.6

    name: ClassVar[str] = "coin"
    query: ClassVar[QuerySpan] = "prompt"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"alpha": (0.0, 1.0), "beta": (0.0, 1.0)}
    official_ms: ClassVar[float] = 396.0

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        # A prompt without text has no direction; its alignment is 0 everywhere.
        text = stack([at_least_float32(view.query).sum(dim=0) / max(1, view.query.shape[0]) for view in views])
        order = coin_order(stack([view.tokens for view in views]), text, k, self.alpha, self.beta)
        return [Selection(anchors) for anchors in order.sort(dim=1).values]
