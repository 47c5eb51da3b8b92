"""Greedy answers from a pruned prefix, with a key-value cache."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from sightline.answering.materialise import materialise
from sightline.answering.select import SelectStep
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.cuts import LayerCuts
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import Selection
from sightline.probes.images import open_image


@dataclass(frozen=True)
class Reply:
    text: str
    ids: list[int]
    kept: int
    full: int


def generate(
    step: SelectStep, encoded: Encoded, probe: Probe, arm: Arm, *, max_new_tokens: int = 32, positions: str = "auto"
) -> Reply:
    """Greedy continuation of the prompt after ``arm`` pruned the picture."""
    backbone: Backbone = step.backbone
    policy = backbone.paper_positions if positions == "auto" else positions
    prompt = backbone.prompt(probe.question, probe.target_text)
    cutter = None
    k = arm.budget.resolve(encoded.n)
    if arm.inside:
        selection = Selection(torch.arange(encoded.n))
    else:
        selection = step(encoded, prompt, probe, arm).selection
        k = len(selection.anchors)
    prefix = materialise(backbone, encoded, prompt, selection, policy, branches=False)  # type: ignore[arg-type]
    if arm.inside:
        schedule = arm.selector.schedule(encoded.n, k, len(backbone.language.layers))  # type: ignore[union-attr]
        cutter = LayerCuts(arm.selector, schedule, [prefix], [encoded.layout], [step.key(probe, arm)])  # type: ignore[arg-type]
    ids = backbone.language.generate(prefix, max_new_tokens, backbone.stop_ids, cutter)
    text = backbone.tokenizer.decode(ids, skip_special_tokens=True).strip()
    return Reply(text, ids, k, encoded.n)


def answer(
    model: str,
    image: Path,
    question: str,
    arm: str,
    *,
    target: str = "",
    max_new_tokens: int = 32,
    dtype: str = "auto",
    device: str = "auto",
    clip: str | None = None,
) -> Reply:
    """Loads a model and answers one question about one picture file."""
    parsed = parse_arm(arm)
    picture = open_image(image.parent, image.name)
    backbone = load_backbone(model, dtype=dtype, device=device)
    step = SelectStep(backbone, ClipSpace(clip, backbone.language.device) if clip else None)
    step.refuse_unserved([parsed])
    encoded = backbone.encode([backbone.preprocess(picture)], parsed.selector.needs)[0]
    probe = Probe(
        id="ask", image=image.name, image_id=image.name, question=question, label="yes", target_text=target,
        source_text=target, regions=(),
    )  # fmt: skip
    return generate(step, encoded, probe, parsed, max_new_tokens=max_new_tokens)
