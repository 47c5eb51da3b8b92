"""Checks, on the user's own checkpoint, that what is audited is the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from torch import Tensor

from sightline.answering.materialise import materialise
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.unmodified import model_logits
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.selection import Selection
from sightline.probes.images import open_image

QUESTION = 'Does the image contain the exact text "INVOICE"? Answer yes or no.'
TOLERANCE = {torch.float32: 1e-4, torch.float16: 5e-2, torch.bfloat16: 5e-1}
"""Largest allowed logit difference by dtype; half precisions differ by kernel, not by path."""


@dataclass(frozen=True)
class Finding:
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
) -> list[Finding]:
    """Every check, in words. A failed check says what differs and by how much."""
    backbone = load_backbone(model, dtype=dtype, device=device, attention=attention, options=image_options)
    picture = open_image(image.parent, image.name) if image else drawn_picture()
    encoded = backbone.encode([backbone.preprocess(picture)])[0]
    prompt = backbone.prompt(QUESTION, "INVOICE")
    return [
        cell_count(backbone, encoded),
        own_logits(backbone, encoded, prompt, picture),
        policies_agree_unpruned(backbone, encoded, prompt),
        prefix_is_shorter(backbone, encoded, prompt),
        batch_invariance(backbone, encoded, prompt),
        one_token_answers(backbone, prompt),
    ]


def drawn_picture() -> Image.Image:
    """A page-like picture, wider than high so that a crop or a tiling shows."""
    image = Image.new("RGB", (640, 448), (246, 244, 238))
    draw = ImageDraw.Draw(image)
    for line in range(14):
        draw.text(
            (24, 20 + 30 * line),
            f"INVOICE {line:03d}   item {line * 7919 % 1000}   {line * 3.17:.2f}",
            fill=(30, 30, 40),
        )
    return image


def cell_count(backbone: Backbone, encoded: Encoded) -> Finding:
    blocks = sum(rows * columns for rows, columns in encoded.layout)
    passed = encoded.n == len(encoded.cells) == blocks and all(len(level) == encoded.n for level in encoded.deepstack)
    return Finding(
        passed,
        f"token-to-cell map: {encoded.n} visual tokens, {len(encoded.cells)} cells, layout {list(encoded.layout)}, "
        f"{len(encoded.deepstack)} DeepStack levels",
    )


def _full(backbone: Backbone, encoded: Encoded, prompt: Prompt, policy: str) -> Prefix:
    everything = Selection(torch.arange(encoded.n, device=encoded.tokens.device))
    return materialise(backbone, encoded, prompt, everything, policy, branches=False)  # type: ignore[arg-type]


@torch.inference_mode()
def prefix_logits(backbone: Backbone, prefix: Prefix) -> Tensor:
    """Logits of the audited path over the whole prefix."""
    language = backbone.language
    hidden = language.run(language.collate([prefix])).hidden
    logits: Tensor = language.head(language.norm(hidden))[0]
    return logits


def own_logits(backbone: Backbone, encoded: Encoded, prompt: Prompt, picture: Image.Image) -> Finding:
    prefix = _full(backbone, encoded, prompt, "preserve")
    reference = model_logits(backbone, picture, encoded, (*prompt.head, *prompt.tail), len(prompt.head))
    ours = prefix_logits(backbone, prefix)
    difference = float((ours - reference).abs().max())
    allowed = TOLERANCE[backbone.language.dtype]
    verdict = "equals" if difference <= allowed else "differs from"
    return Finding(
        difference <= allowed,
        f"keep 1.0: the audited path {verdict} the model's own forward, largest logit difference {difference:.2e} "
        f"(allowed {allowed:.0e})",
    )


def policies_agree_unpruned(backbone: Backbone, encoded: Encoded, prompt: Prompt) -> Finding:
    preserve, compact = (_full(backbone, encoded, prompt, policy).positions for policy in ("preserve", "compact"))
    passed = bool(torch.equal(preserve, compact))
    return Finding(passed, f"position policies {'agree' if passed else 'disagree'} on an unpruned prefix")


def prefix_is_shorter(backbone: Backbone, encoded: Encoded, prompt: Prompt) -> Finding:
    kept = torch.arange(0, encoded.n, 3, device=encoded.tokens.device)
    prefix = materialise(backbone, encoded, prompt, Selection(kept), backbone.paper_positions, branches=False)
    expected = len(prompt.head) + len(kept) + len(prompt.tail)
    length = prefix.embeds.shape[0]
    passed = length == expected and all(len(level) == len(kept) for level in prefix.deepstack)
    return Finding(
        passed, f"pruning really shortens: {prefix.full_length} positions become {length} for K = {len(kept)}"
    )


def batch_invariance(backbone: Backbone, encoded: Encoded, prompt: Prompt) -> Finding:
    """The same probe alone and padded into a batch of longer and shorter ones."""
    policy = backbone.paper_positions
    strides = (1, 2, 3, 5)
    prefixes = [
        materialise(
            backbone, encoded, prompt, Selection(torch.arange(0, encoded.n, s, device=encoded.tokens.device)), policy
        )
        for s in strides
    ]
    alone = [backbone.language.score([prefix])[0] for prefix in prefixes]
    together = backbone.language.score(prefixes)
    difference = max(
        abs((a.loss_no - a.loss_yes) - (b.loss_no - b.loss_yes)) for a, b in zip(alone, together, strict=True)
    )
    allowed = TOLERANCE[backbone.language.dtype]
    return Finding(
        difference <= allowed,
        f"batch invariance: margins alone and in a batch of {len(strides)} differ by at most {difference:.2e} "
        f"(allowed {allowed:.0e})",
    )


def one_token_answers(backbone: Backbone, prompt: Prompt) -> Finding:
    scored = [(*prompt.shared, *branch)[len(prompt.tail) :] for branch in (prompt.yes, prompt.no)]
    passed = len(scored[0]) == len(scored[1]) > 0
    return Finding(
        passed,
        f"answers: ' yes' scores {len(scored[0])} tokens and ' no' {len(scored[1])}"
        + ("" if passed else "; mean losses of different lengths are not comparable"),
    )
