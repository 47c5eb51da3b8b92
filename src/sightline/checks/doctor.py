"""Checks, on the user's own checkpoint, that what is audited is the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw

from sightline.answering.answerer import Answerer
from sightline.answering.arm_pass import ArmPass
from sightline.answering.scorers import Scorer
from sightline.answering.scorers.generation import Generation
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.unmodified import model_logits
from sightline.core.prefix import Encoded, PositionPolicy, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.probes.images import open_image

PROBE = Probe(
    id="doctor", image="page.png", image_id="page", label="yes", target_text="INVOICE", source_text="INVOICE",
    question='Does the image contain the exact text "INVOICE"? Answer yes or no.', regions=(),
)  # fmt: skip
PRUNED = ("grid:0.34", "target:0.5", "random:0.2")
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-1}
"""Largest allowed logit difference by dtype; half precisions differ by kernel, not by path."""


@dataclass(frozen=True)
class Check:
    passed: bool
    words: str


def examine(
    model: str,
    image: Path | None = None,
    *,
    dtype: str = "float32",
    device: str = "auto",
    attention: str = "sdpa",
    image_options: Mapping[str, Any] | None = None,
) -> list[Check]:
    """Every check, in words. A failed check says what differs and by how much."""
    opened = open_image(image.parent, image.name) if image else drawn_image()
    backbone = load_backbone(model, dtype=dtype, device=device, attention=attention, options=image_options)
    page = AskedImage(backbone, opened, backbone.encode([backbone.preprocess(opened)])[0])
    return [
        cell_count(page),
        own_logits(page),
        policies_agree_unpruned(page),
        prefix_is_shorter(page),
        batch_invariance(page),
        one_token_answers(page),
    ]


@dataclass(frozen=True)
class AskedImage:
    """An encoded image and a question about it, on the path that every audit takes."""

    backbone: Backbone
    image: Image.Image
    encoded: Encoded

    def over(self, arm: str, scorer: Scorer, positions: PositionPolicy | None = None) -> ArmPass:
        return Answerer(self.backbone, scorer, positions=positions).over(parse_arm(arm), [PROBE], [self.encoded])

    def prefix(self, arm: str, positions: PositionPolicy | None = None) -> Prefix:
        """What is left for the language model, without continuations behind it."""
        return self.over(arm, Generation(), positions).prefix(0)

    @property
    def prompt(self) -> Prompt:
        return self.backbone.prompt(PROBE.question, PROBE.target_text)


def drawn_image() -> Image.Image:
    """A page-like image, wider than high so that a crop or a tiling shows."""
    image = Image.new("RGB", (640, 448), (246, 244, 238))
    draw = ImageDraw.Draw(image)
    for line in range(14):
        draw.text(
            (24, 20 + 30 * line),
            f"INVOICE {line:03d}   item {line * 7919 % 1000}   {line * 3.17:.2f}",
            fill=(30, 30, 40),
        )
    return image


def cell_count(page: AskedImage) -> Check:
    encoded = page.encoded
    blocks = sum(rows * columns for rows, columns in encoded.layout)
    passed = encoded.n == len(encoded.cells) == blocks and all(len(level) == encoded.n for level in encoded.deepstack)
    return Check(
        passed,
        f"token-to-cell map: {encoded.n} visual tokens, {len(encoded.cells)} cells, layout {list(encoded.layout)}, "
        f"{len(encoded.deepstack)} DeepStack levels",
    )


def own_logits(page: AskedImage) -> Check:
    prompt, backbone = page.prompt, page.backbone
    reference = model_logits(backbone, page.image, (*prompt.head, *prompt.tail), len(prompt.head))
    ours = backbone.language.prefix_logits(page.prefix("full", "preserve"))
    difference = float((ours - reference).abs().max())
    allowed = TOLERANCE[backbone.language.dtype]
    verdict = "equals" if difference <= allowed else "differs from"
    return Check(
        difference <= allowed,
        f"keep 1.0: the audited path {verdict} the model's own forward, largest logit difference {difference:.2e} "
        f"(allowed {allowed:.0e})",
    )


def policies_agree_unpruned(page: AskedImage) -> Check:
    passed = bool(torch.equal(page.prefix("full", "preserve").positions, page.prefix("full", "compact").positions))
    return Check(passed, f"position policies {'agree' if passed else 'disagree'} on an unpruned prefix")


def prefix_is_shorter(page: AskedImage) -> Check:
    prefix, k = page.prefix(PRUNED[0]), parse_arm(PRUNED[0]).budget.resolve(page.encoded.n)
    expected = page.prompt.full_length(k)
    length = prefix.embeds.shape[0]
    passed = length == expected and all(len(level) == k for level in prefix.deepstack)
    return Check(passed, f"pruning really shortens: {prefix.full_length} positions become {length} for K = {k}")


def batch_invariance(page: AskedImage) -> Check:
    """The same probe alone and padded into a batch of longer and shorter ones."""
    prefixes = [page.over(arm, YesNo()).prefix(0) for arm in ("full", *PRUNED)]
    language = page.backbone.language
    alone = [language.score([prefix])[0] for prefix in prefixes]
    differences = [
        abs(mine.loss - batched.loss)
        for one, together in zip(alone, language.score(prefixes), strict=True)
        for mine, batched in zip(one, together, strict=True)
    ]
    allowed = TOLERANCE[language.dtype]
    return Check(
        max(differences) <= allowed,
        f"batch invariance: losses alone and in a batch of {len(prefixes)} differ by at most {max(differences):.2e} "
        f"(allowed {allowed:.0e})",
    )


def one_token_answers(page: AskedImage) -> Check:
    yes, no = YesNo().prompt(page.backbone, PROBE).scored
    passed = len(yes) == len(no) > 0
    return Check(
        passed,
        f"answers: ' yes' scores {len(yes)} tokens and ' no' {len(no)}"
        + ("" if passed else "; mean losses of different lengths are not comparable"),
    )
