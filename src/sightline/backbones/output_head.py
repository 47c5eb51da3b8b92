"""The output head as the model itself applies it: a matrix, and what some models do to its logits behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from sightline.errors import SightlineError

TOKENS = 5
"""Length of the sequence that both ways read."""
TOLERANCE = 1e-3
"""Largest difference, as a share of the largest logit: far below what a cap or a scale changes."""


class AdjustedHead(nn.Module):
    """An output head and what the model does to its logits."""

    def __init__(self, head: nn.Module, adjusted: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.head, self.adjusted = head, adjusted

    def forward(self, hidden: Tensor) -> Tensor:
        return self.adjusted(self.head(hidden))


def output_head(model: Any, body: Any) -> Any:
    """What turns the last hidden states of ``body`` into the logits of ``model``, tried out on a few tokens.

    Besides the matrix alone, a scale and a cap c tanh(x / c) are known, by what the configuration calls them. A model
    that does anything else is refused, and so is one with such a setting that cannot be asked without an image.
    """
    head = model.get_output_embeddings()
    known = _adjustments(model.config.get_text_config())
    try:
        with torch.inference_mode():
            logits, hidden = _asked(model, body)
            found = head(hidden)
    except Exception as error:  # whatever a model of somebody else needs beside embeddings
        if known:
            raise SightlineError(
                f"{type(model).__name__} changes its logits ({', '.join(known)}) and cannot be asked how: "
                f"{type(error).__name__}"
            ) from error
        return head
    if _alike(found, logits):
        return head
    for adjusted in known.values():
        if _alike(adjusted(found), logits):
            return AdjustedHead(head, adjusted)
    raise SightlineError(f"{type(model).__name__}: its output head does more than multiply, cap or scale")


def _asked(model: Any, body: Any) -> tuple[Tensor, Tensor]:
    """(1, T, V) the model's logits of a few tokens, and (1, T, D) what its head reads."""
    embedding = model.get_input_embeddings()
    ids = torch.arange(TOKENS, device=embedding.weight.device)[None]
    given = {"inputs_embeds": embedding(ids), "attention_mask": torch.ones_like(ids), "use_cache": False}
    return model(**given).logits, body(**given).last_hidden_state


def _alike(found: Tensor, logits: Tensor) -> bool:
    far = (found.float() - logits.float()).abs().max() / logits.float().abs().max().clamp_min(1e-12)
    return bool(far <= (TOLERANCE if found.dtype == torch.float32 else 10 * TOLERANCE))


def _adjustments(config: Any) -> dict[str, Callable[[Tensor], Tensor]]:
    """What the configuration says is done to logits, by the name of the setting."""
    cap, factor, divisor = (
        getattr(config, name, None) for name in ("final_logit_softcapping", "logit_scale", "logits_scaling")
    )
    found: dict[str, Callable[[Tensor], Tensor]] = {}
    if cap:
        found["final_logit_softcapping"] = lambda logits: torch.tanh(logits / cap) * cap
    if factor not in (None, 1.0):
        found["logit_scale"] = lambda logits: logits * factor
    if divisor not in (None, 1.0):
        found["logits_scaling"] = lambda logits: logits / divisor
    return found
