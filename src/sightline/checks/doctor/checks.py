"""Checks of answers, like the model's own, pruned and whole, batched and alone; and what every stage takes."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.backbones.base import model_logits
from sightline.backbones.decoder_trials import LAYER_TOLERANCE as SHARE
from sightline.backbones.general import General
from sightline.backbones.towered import Towered
from sightline.checks.doctor.examination import PROBE, PRUNED, Check, ExaminedPage
from sightline.core.prefix import Prefix
from sightline.core.selection import PositionPolicy
from sightline.device.work import MemoryGrowth

# Can the losses of both answers be compared? They have to have the same number of tokens.


def one_token_answers(page: ExaminedPage) -> Check:
    yes, no = YesNo().prompt(page.backbone, PROBE).scored
    passed = len(yes) == len(no) > 0
    return Check(
        passed,
        f"answers: ' yes' scores {len(yes)} tokens and ' no' {len(no)}"
        + ("" if passed else "; mean losses of different lengths are not comparable"),
        {"yes": len(yes), "no": len(no)},
    )


# Does it matter what else is in a batch? Prefixes in the language model, images in the vision tower.


def language_batches(page: ExaminedPage) -> Check:
    """The same probe alone and padded into a batch of longer and shorter ones."""
    prefixes = [page.over(arm, YesNo()).prefix(0) for arm in ("full", *page.pruned)]
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


def image_batches(page: ExaminedPage) -> Check:
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


# Is the unpruned prefix what the model itself reads? Its ids and its logits.


def own_prompt(page: ExaminedPage) -> Check | None:
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


def own_logits(page: ExaminedPage) -> Check:
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


# Is the pruned prefix really shorter, and is what is left where it should be? Both position policies.

POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")


def prefix_is_shorter(page: ExaminedPage) -> Check:
    prefix, k = page.prefix(PRUNED[0]), parse_arm(PRUNED[0]).budget.resolve(page.encoded.n)
    length, full = prefix.embeds.shape[0], page.prompt.full_length(page.encoded.slots)
    passed = (
        prefix.k == k
        and length == page.prompt.full_length(prefix.span)
        and length < prefix.full_length == full
        and all(len(level) == prefix.span for level in prefix.deepstack)
    )
    between = f" and {prefix.separators} separators" if prefix.separators else ""
    return Check(
        passed,
        f"pruning really shortens: {prefix.full_length} positions become {length} for K = {k}{between}",
        {"full": prefix.full_length, "pruned": length, "k": k, "separators": prefix.separators},
    )


def policies_agree_unpruned(page: ExaminedPage) -> Check:
    passed = bool(torch.equal(page.prefix("full", "preserve").positions, page.prefix("full", "compact").positions))
    return Check(passed, f"position policies {'agree' if passed else 'disagree'} on an unpruned prefix")


def policies_order_pruned(page: ExaminedPage) -> Check:
    """Both run on a pruned prefix, with ids in order and within those of the unpruned one."""
    if page.backbone.language.beside:
        words = "position policies: not applicable to an image that is read beside the text, where it has no positions"
        return Check(True, words, applies=False)
    whole = page.prefix("full", "preserve")
    wrong = {}
    for policy in POLICIES:
        prefix = page.prefix(PRUNED[0], policy)
        said = misplaced(prefix, whole)
        if said is None and not page.backbone.language.prefix_logits(prefix).isfinite().all():
            said = "logits that are not finite"
        if said is not None:
            wrong[policy] = said
    verdict = "; ".join(f"{policy} gives {said}" for policy, said in wrong.items())
    return Check(
        not wrong,
        f"position policies on a pruned prefix: {verdict or 'both run, ids in order and within the unpruned ones'}",
        {policy: wrong.get(policy, "in order") for policy in POLICIES},
    )


def misplaced(prefix: Prefix, whole: Prefix) -> str | None:
    """What is wrong with a branch-free prefix's ids, beside those of the unpruned one; None if nothing is.

    Text counts up. The image's ids stand between those of the text around it on every axis on which the unpruned ones
    do, no two slots alike; on a single axis they count up as well.
    """
    ids, last = prefix.positions.cpu(), int(whole.positions.max())
    behind = prefix.start + prefix.span
    head, span, tail = ids[:, : prefix.start], ids[:, prefix.start : behind], ids[:, behind:]
    if any((part.diff(dim=1) <= 0).any() for part in (head, tail, *([span] if len(ids) == 1 else []))):
        return "ids that do not count up"
    if ids.min() < 0 or ids.max() > last:
        return f"ids outside 0..{last}"
    if len(torch.unique(span, dim=1).T) != prefix.span:
        return "the same ids to two slots of the image"
    if (between_the_text(whole) & ~between_the_text(prefix)).any():
        return "ids of the image that are not between those of the text around it"
    return None


def between_the_text(prefix: Prefix) -> torch.Tensor:
    """(A,) bool: axes on which the image's ids stand between those of the text around it."""
    ids, behind = prefix.positions.cpu(), prefix.start + prefix.span
    head, span, tail = ids[:, : prefix.start], ids[:, prefix.start : behind], ids[:, behind:]
    return (span.amin(1) > (head.max() if head.numel() else -1)) & (
        span.amax(1) < (tail.min() if tail.numel() else span.max() + 1)
    )


# What every stage takes on this machine: facts, measured once after all checks have warmed it up.

Result = TypeVar("Result")


def stage_facts(page: ExaminedPage, finding_cells: float | None) -> list[dict[str, Any]]:
    """Per stage ``stage``, ``seconds``, and ``mib``: what memory grew by while it ran; None where nobody can tell.

    ``finding_cells`` are the seconds that finding cells took, where they could be found.
    """
    backbone = page.backbone
    taken: list[dict[str, Any]] = []

    def stage(name: str, work: Callable[[], Result]) -> Result:
        backbone.synchronise()
        with MemoryGrowth(backbone.language.device) as memory:
            started = time.perf_counter()
            result = work()
            backbone.synchronise()
            seconds = time.perf_counter() - started
        grown = None if memory.grown is None else round(memory.grown / 2**20, 1)
        taken.append({"stage": name, "seconds": seconds, "mib": grown})
        return result

    pixels = stage("preprocess", lambda: backbone.preprocess(page.image))
    if finding_cells is not None:
        taken.append({"stage": "cells by ramps", "seconds": finding_cells, "mib": None})
    stage("vision", lambda: backbone.encode([pixels]))
    whole = page.over("full", YesNo()).prefix(0)
    arm = page.pruned[0]
    pruned = stage(f"select {arm}", lambda: page.over(arm, YesNo()).prefix(0))
    stage("language, full", lambda: backbone.language.score([whole]))
    stage(f"language, {arm}", lambda: backbone.language.score([pruned]))
    return taken
