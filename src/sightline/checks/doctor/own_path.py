"""Is the unpruned prefix what the model itself reads? Its ids and its logits."""

from __future__ import annotations

from sightline.backbones.general import General
from sightline.backbones.towered import Towered
from sightline.backbones.unmodified import model_logits
from sightline.checks.doctor.asked_page import PROBE, AskedPage
from sightline.checks.doctor.examination import Check


def own_prompt(page: AskedPage) -> Check | None:
    """The ids of head, span and tail against one call of the checkpoint's processor with text and image.

    None where the image reaches the model by a file of its own, without that processor.
    """
    backbone = page.backbone
    if not isinstance(backbone, General):
        return None
    text, first = backbone.processor_text(PROBE.question), backbone.tokenizer.bos_token
    called = backbone.processor(
        text=[text],
        images=[page.image],
        return_tensors="pt",
        images_kwargs=backbone.processor_arguments(),
        # As apply_chat_template calls it: a template that writes the first token gets no second one.
        text_kwargs={"add_special_tokens": first is None or not text.startswith(first)},
    )
    expected = called["input_ids"][0].tolist()
    ours = [*page.prompt.head, *backbone.span_ids(page.image.size), *page.prompt.tail]
    unequal = sum(mine != own for mine, own in zip(ours, expected, strict=False)) + abs(len(ours) - len(expected))
    verdict = (
        f"{unequal} of which are not those that its processor makes of text and image"
        if unequal
        else "those that the checkpoint's processor makes of text and image in one call"
    )
    return Check(
        not unequal,
        f"prompt: {len(ours)} ids around and in the image, {verdict}",
        {"ids": len(ours), "unequal": unequal},
    )


def own_logits(page: AskedPage) -> Check:
    """Every logit of the audited prefix with all tokens kept against the model's ordinary forward."""
    prompt, backbone = page.prompt, page.backbone
    # What an image option does before all else is asked for, and no part of the path.
    image = backbone.altered(page.image) if isinstance(backbone, Towered) else page.image
    reference = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    ours = backbone.language.prefix_logits(page.prefix("full", "preserve"))
    difference, allowed = float((ours - reference).abs().max()), page.tolerance
    verdict = "equals" if difference <= allowed else "differs from"
    return Check(
        difference <= allowed,
        f"keep 1.0: the audited path {verdict} the model's own forward, largest logit difference {difference:.2e} "
        f"(allowed {allowed:.0e})",
        {"difference": difference, "allowed": allowed},
    )
