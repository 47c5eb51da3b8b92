"""The one-sample procedure: what a plain evaluation script does for every row, one continuation after the other.

Per continuation the image goes through image processor and vision tower again, the selector chooses again, and the
language model reads one sequence, prompt and that answer, eagerly and alone, with the output head on every position.
The loss is read before the next one begins. Processor, tower, language model and head are called as transformers has
them; only methods that need hidden states or prune between layers go through our loops, as there is no other way to run
them. (The published artifact even calls the processor twice, for the prompt and for the whole sequence.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from sightline.answering.scorers.yes_no import LikelihoodScorer
from sightline.arms.arm import Arm
from sightline.backbones.base import Backbone
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.images import Pixels
from sightline.backbones.language import Likelihood
from sightline.backbones.towered import Towered
from sightline.core.prefix import Encoded, Prefix
from sightline.core.probe import Probe
from sightline.cost.subject import Subject

ANSWERS = (" yes", " no")


@torch.inference_mode()
def one_loss(subject: Subject, arm: Arm, probe: Probe, pixels: Pixels, values: Tensor, answer: str) -> float:
    """Mean negative log-likelihood of one continuation, from the pixel values on."""
    backbone = subject.backbone
    needs = backbone.form(arm.selector).needs
    (encoded,) = backbone.encode([pixels], needs) if needs else models_own_features(backbone, pixels, values)
    passed = subject.answering(OneAnswer(answer)).over(arm, [probe], [encoded])
    prefix = passed.prefix(0)
    return loss_of(backbone, prefix, passed.cutter([0], [prefix]))


class OneAnswer(LikelihoodScorer):
    """Prompt and one continuation as one plain sequence without branches; only its scored positions are read."""

    def __init__(self, answer: str) -> None:
        self.answer = answer

    def answers(self, probe: Probe) -> tuple[str, ...]:
        return (self.answer,)

    def verdict(self, probe: Probe, likelihoods: Sequence[Likelihood]) -> dict[str, Any]:
        return {"loss": likelihoods[0].loss}


def models_own_features(backbone: Backbone, pixels: Pixels, values: Tensor) -> list[Encoded]:
    """The image through the model's own vision call."""
    if not isinstance(backbone, Towered):
        return backbone.vision([pixels], frozenset())
    extra: dict[str, Any] = {}
    if backbone.axes == 3:
        extra["image_grid_thw"] = torch.tensor([pixels.grid], device=values.device)
    features = backbone.model.model.get_image_features(values, return_dict=True, **extra)
    levels = getattr(features, "deepstack_features", None) or ()
    return backbone.seen([pixels], None, [_rows(each) for each in (features.pooler_output, *levels)], {})


def _rows(features: Tensor | Sequence[Tensor]) -> Tensor:
    """(sum of N, D), whether transformers returns one tensor or, as later releases do, one per image."""
    return features.flatten(0, -2) if isinstance(features, Tensor) else torch.cat([_rows(part) for part in features])


def loss_of(backbone: Backbone, prefix: Prefix, cutter: LayerCuts | None) -> float:
    """The loss by the model's own language model; by our loop where something cuts between its layers.

    One that our loop does not run is asked as an audit asks it, which calls its own forward with all that it is told.
    """
    if cutter is None and backbone.language.plain:
        return models_own_loss(backbone, prefix)
    ((likelihood,),) = backbone.language.score([prefix], cutter)
    return likelihood.loss


def models_own_loss(backbone: Backbone, prefix: Prefix) -> float:
    """The prefix through the model's own language model and output head; the loss of its scored positions."""
    positions = prefix.positions[:, None] if backbone.axes == 3 else prefix.positions
    extra: dict[str, Any] = {}
    if prefix.deepstack:
        visual = torch.zeros(1, prefix.embeds.shape[0], dtype=torch.bool, device=prefix.embeds.device)
        visual[:, prefix.start : prefix.start + prefix.span] = True
        extra = {"visual_pos_masks": visual, "deepstack_visual_embeds": list(prefix.deepstack)}
    output = backbone.model.model.language_model(inputs_embeds=prefix.embeds[None], position_ids=positions, **extra)
    logits = backbone.model.lm_head(output.last_hidden_state)[0].float()
    ((offsets, ids),) = prefix.reads
    rows = torch.tensor(offsets, device=logits.device) + prefix.start + prefix.span
    targets = torch.tensor(ids, device=logits.device)
    return float(cross_entropy(logits[rows], targets))
