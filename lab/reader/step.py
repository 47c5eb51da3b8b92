"""One training step as a pure function of a drawn batch, so that it can be compiled."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lab.reader.forms import Form
from lab.reader.forward import SeenTokens
from lab.reader.objectives import (
    Heads,
    LocalTargets,
    answer_losses,
    apply_target_choice,
    finding_losses,
    local_losses,
    open_losses,
    target_scores,
)

LOCAL_WEIGHTS = {"slots": 1.0, "bigrams": 0.5, "align": 1.0, "rank": 1.0, "page": 0.2}
ANSWER_WEIGHTS = {"answer": 1.0, "spelling": 1.0, "ending": 0.1, "letters": 2.0}
OPEN_WEIGHTS = ANSWER_WEIGHTS | {"spelling": 0.5, "align": 0.2, "rank": 0.5, "page": 0.05}
SILENCE_WEIGHT = 0.3
LOCAL_SHARE_IN_JOINT = 0.2
RANK_SHARE_IN_JOINT = 0.5

Losses = dict[str, Tensor]


class Steps:
    """The stages' losses over one model and its training heads."""

    def __init__(
        self, form: Form, model: Any, heads: Heads, device: torch.device, mixed: bool, *, silence: bool = False
    ) -> None:
        self.forward = form.forward(model, device)
        self.heads = heads
        self.device = device
        self.bfloat16 = mixed
        self.silence = {"silence": SILENCE_WEIGHT} if silence else {}

    def vision(self, images: Tensor, sample: dict[str, Tensor], what: LocalTargets) -> Losses:
        """Stage A: the vision tower alone, under local supervision."""
        with self.mixed():
            seen = self.forward.see(images)
            scores = target_scores(seen.tokens, self.forward.embedding, sample["targets"])
            losses = local_losses(self.heads, seen, self.forward.embedding, scores, sample["boxes"], what)
        return losses | {"loss": sum_weighted(losses, LOCAL_WEIGHTS)}

    def joint(
        self, images: Tensor, sample: dict[str, Tensor], what: LocalTargets, keep: Tensor, counts: Tensor
    ) -> Losses:
        """Stage B: answers through the whole model, with visual tokens dropped; local supervision goes on, weakly.

        Where all images are asked yes/no questions the losses of open answers are zero.
        """
        with self.mixed():
            seen = self.forward.see(images)
            scores = target_scores(seen.tokens, self.forward.embedding, sample["targets"])
            losses = local_losses(self.heads, seen, self.forward.embedding, scores, sample["boxes"], what)
            keep = apply_target_choice(keep, counts, scores[:, 0].detach())
            logits = self._logits(seen, sample, keep)
            answers = answer_losses(logits, sample) | open_losses(logits, sample, keep)
        local = sum_weighted(losses, LOCAL_WEIGHTS | {"rank": RANK_SHARE_IN_JOINT / LOCAL_SHARE_IN_JOINT})
        total = sum_weighted(answers, ANSWER_WEIGHTS | self.silence) + LOCAL_SHARE_IN_JOINT * local
        return losses | answers | {"loss": total}

    def mixture(
        self, images: Tensor, sample: dict[str, Tensor], what: LocalTargets, keep: Tensor, counts: Tensor
    ) -> Losses:
        """Yes/no and open questions, each image with one kind, on top of a reader that answers the former.

        The vision tower is told no longer which character stands where, only to keep words findable.
        """
        with self.mixed():
            seen = self.forward.see(images)
            scores = target_scores(seen.tokens, self.forward.embedding, sample["targets"])
            found = finding_losses(self.heads, seen, self.forward.embedding, scores, sample["boxes"], what)
            keep = apply_target_choice(keep, counts, scores[:, 0].detach())
            logits = self._logits(seen, sample, keep)
            losses = found | answer_losses(logits, sample) | open_losses(logits, sample, keep)
        return losses | {"loss": sum_weighted(losses, OPEN_WEIGHTS | self.silence)}

    def language(self, images: Tensor, sample: dict[str, Tensor], keep: Tensor, counts: Tensor) -> Losses:
        """Answers only, with the vision tower and the embeddings as they are: Target's scores cannot move."""
        with self.mixed():
            with torch.no_grad():
                seen = self.forward.see(images)
                scores = target_scores(seen.tokens, self.forward.embedding, sample["targets"][:, :1])
                keep = apply_target_choice(keep, counts, scores[:, 0])
            answers = answer_losses(self._logits(seen, sample, keep), sample)
        return answers | {"loss": sum_weighted(answers, ANSWER_WEIGHTS)}

    def _logits(self, seen: SeenTokens, sample: dict[str, Tensor], keep: Tensor) -> Tensor:
        """(B, L, V) at the packed question tokens."""
        text = sample["ids"], sample["positions"], sample["segments"]
        return self.forward.logits(self.forward.read(seen, *text, keep, sample["in_words"][:, 0]))

    def mixed(self) -> torch.autocast:
        """Matrix products in bfloat16, where chosen."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.bfloat16)


def sum_weighted(losses: Losses, weights: dict[str, float]) -> Tensor:
    """Of the losses that are there."""
    return torch.stack([losses[name] * weight for name, weight in weights.items() if name in losses]).sum()
