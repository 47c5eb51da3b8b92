"""The one-sample procedure: what a plain evaluation script does for every row, one continuation after the other.

Per continuation the picture goes through the vision tower again, the selector chooses again, and the language model
reads one sequence, prompt and that answer, eagerly and alone. The loss is read before the next one begins.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from sightline.arms import Arm
from sightline.backbones.base import Backbone, Pixels
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.materialise import materialise
from sightline.types import Encoded, PositionPolicy, Prefix, Probe, Prompt, Selection

ANSWERS: tuple[Literal["yes", "no"], ...] = ("yes", "no")


@torch.inference_mode()
def time_one_sample(request: Request, subject: Subject, arms: Sequence[Arm]) -> list[float]:
    """Milliseconds per row, arms in turn so that every arm weighs the same; preprocessing excluded."""
    backbone = subject.backbone
    pixels = backbone.preprocess(subject.picture(0))
    rows = -(-request.one_sample_rows // len(arms)) * len(arms)
    samples = []
    for row in range(-request.warm_up, rows):
        arm, probe = arms[row % len(arms)], subject.probe(0, row % request.probes)
        backbone.synchronise()
        started = time.perf_counter()
        for answer in ANSWERS:
            one_loss(subject, arm, probe, pixels, answer)
        if row >= 0:
            samples.append((time.perf_counter() - started) * 1e3)
    return samples


@torch.inference_mode()
def one_loss(subject: Subject, arm: Arm, probe: Probe, pixels: Pixels, answer: Literal["yes", "no"]) -> float:
    """Mean negative log-likelihood of one continuation, from the picture on."""
    backbone = subject.backbone
    (encoded,) = backbone.encode([pixels], arm.selector.needs)
    if arm.inside:
        selection = Selection(torch.arange(encoded.n, device=subject.device))
    else:
        selection = subject.step(encoded, subject.prompt, probe, arm).selection
    prefix = with_one_answer(backbone, encoded, subject.prompt, selection, subject.policy, answer)
    pending = backbone.language.launch([prefix], subject.cutter(arm, [prefix], [encoded]))
    return float(pending.nll.read().mean())


def with_one_answer(
    backbone: Backbone,
    encoded: Encoded,
    prompt: Prompt,
    selection: Selection,
    policy: PositionPolicy,
    answer: Literal["yes", "no"],
) -> Prefix:
    """Prompt and one continuation as one plain sequence without branches; only its scored positions are read.

    The last token is only ever predicted, so it needs no slot. A token at index i is predicted at index i - 1.
    """
    complete = (*prompt.shared, *getattr(prompt, answer))
    scored = len(prompt.tail)
    plain = materialise(backbone, encoded, replace(prompt, tail=complete[:-1]), selection, policy, branches=False)
    behind = len(complete) - 1 - scored  # slots that are not the prompt's
    return replace(
        plain,
        reads=((tuple(range(scored - 1, len(complete) - 1)), complete[scored:]),),
        prompt_length=plain.prompt_length - behind,
        full_length=plain.full_length - behind,
    )
