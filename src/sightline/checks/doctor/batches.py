"""Does it matter what else is in a batch? Prefixes in the language model, images in the vision tower."""

from __future__ import annotations

from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.plain_layers import TOLERANCE as SHARE
from sightline.checks.doctor.asked_page import PRUNED, AskedPage
from sightline.checks.doctor.examination import Check


def language_batches(page: AskedPage) -> Check:
    """The same probe alone and padded into a batch of longer and shorter ones."""
    prefixes = [page.over(arm, YesNo()).prefix(0) for arm in ("full", *PRUNED)]
    language = page.backbone.language
    alone = [language.score([prefix])[0] for prefix in prefixes]
    differences = [
        abs(mine.loss - batched.loss)
        for one, together in zip(alone, language.score(prefixes), strict=True)
        for mine, batched in zip(one, together, strict=True)
    ]
    allowed, largest = page.tolerance, max(differences)
    return Check(
        all(difference <= allowed for difference in differences),
        f"batch invariance: losses alone and in a batch of {len(prefixes)} differ by at most {largest:.2e} "
        f"(allowed {allowed:.0e})",
        {"difference": largest, "allowed": allowed},
    )


def image_batches(page: AskedPage) -> Check:
    """The page's tokens alone and beside a narrower image, as a share of the largest value."""
    backbone, (width, height) = page.backbone, page.image.size
    narrow = page.image.crop((0, 0, max(1, width // 2), height))
    beside = backbone.encode([backbone.preprocess(image) for image in (narrow, page.image)])
    alone = backbone.encode([backbone.preprocess(narrow)])[0], page.encoded
    differences = [
        float((mine.tokens - other.tokens).abs().max() / mine.tokens.abs().max())
        for mine, other in zip(alone, beside, strict=True)
    ]
    allowed, largest = SHARE[backbone.language.dtype], max(differences)
    return Check(
        all(difference <= allowed for difference in differences),
        f"images alone and in a batch of two: tokens differ by at most {largest:.2e} of the largest value "
        f"(allowed {allowed:.0e})",
        {"difference": largest, "allowed": allowed},
    )
