"""One question about one image file, answered from a pruned prefix."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from sightline.answering.answerer import Answerer
from sightline.answering.scorers.spoken import MAX_NEW_TOKENS, Generation
from sightline.arms.arm import parse_arm
from sightline.backbones import load_backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.loading import Served, checkpoint_folder
from sightline.core.probe import Probe
from sightline.probes.images import open_image


@dataclass(frozen=True)
class Reply:
    text: str
    kept: int
    full: int


def ask(
    model: str,
    image: Path,
    question: str,
    arm: str,
    *,
    target: str = "",
    max_new_tokens: int = MAX_NEW_TOKENS,
    dtype: str = "auto",
    device: str = "auto",
    clip: str | None = None,
) -> Reply:
    """Loads a model and answers greedily."""
    parsed = parse_arm(arm)
    opened = open_image(image.parent, image.name)
    Served.by_description(checkpoint_folder(model)).refuse(parsed.selector, clip=clip is not None)
    backbone = load_backbone(model, dtype=dtype, device=device)
    space = ClipSpace(clip, backbone.language.device) if clip else None
    answerer = Answerer(backbone, Generation(max_new_tokens), clip=space)
    answerer.step.refuse_unserved([parsed])
    encoded = backbone.encode([backbone.preprocess(opened, budget=parsed.image_budget)], parsed.selector.needs)
    probe = Probe(
        id="ask", image=image.name, image_id=image.name, question=question, label="yes", target_text=target,
        source_text=target, regions=(),
    )  # fmt: skip
    (answered,) = answerer.answer(parsed, [probe], encoded)
    return Reply(answered.values["answer"], answered.trace.k, encoded[0].full_n)
