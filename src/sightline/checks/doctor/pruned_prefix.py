"""Is the pruned prefix really shorter, and is what is left where it should be? Both position policies."""

from __future__ import annotations

import torch

from sightline.arms import parse_arm
from sightline.checks.doctor.asked_page import PRUNED, AskedPage
from sightline.checks.doctor.examination import Check
from sightline.core.prefix import PositionPolicy, Prefix

POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")


def prefix_is_shorter(page: AskedPage) -> Check:
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


def policies_agree_unpruned(page: AskedPage) -> Check:
    passed = bool(torch.equal(page.prefix("full", "preserve").positions, page.prefix("full", "compact").positions))
    return Check(passed, f"position policies {'agree' if passed else 'disagree'} on an unpruned prefix")


def policies_order_pruned(page: AskedPage) -> Check:
    """Both run on a pruned prefix, with ids in order and within those of the unpruned one."""
    last = int(page.prefix("full", "preserve").positions.max())
    wrong = {}
    for policy in POLICIES:
        prefix = page.prefix(PRUNED[0], policy)
        said = misplaced(prefix, last)
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


def misplaced(prefix: Prefix, last: int) -> str | None:
    """What is wrong with a branch-free prefix's ids, of which ``last`` is the largest allowed; None if nothing is.

    Text counts up. The image's ids stand between those of the text around it, no two slots alike; on a single axis they
    count up as well.
    """
    ids = prefix.positions.cpu()
    behind = prefix.start + prefix.span
    head, span, tail = ids[:, : prefix.start], ids[:, prefix.start : behind], ids[:, behind:]
    if any((part.diff(dim=1) <= 0).any() for part in (head, tail, *([span] if len(ids) == 1 else []))):
        return "ids that do not count up"
    if ids.min() < 0 or ids.max() > last:
        return f"ids outside 0..{last}"
    if len(torch.unique(span, dim=1).T) != prefix.span:
        return "the same ids to two slots of the image"
    before = head.max() if head.numel() else -1
    if span.min() <= before or (tail.numel() and span.max() >= tail.min()):
        return "ids of the image that are not between those of the text around it"
    return None
