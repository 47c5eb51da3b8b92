"""Checks of answers, like the model's own, pruned and whole, batched and alone; and of cells, each its token's own."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import Trace, all_needs
from sightline.answering.scorers.spoken import Generation
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.arms.arm import Arm
from sightline.backbones import Backbone
from sightline.backbones.base import model_logits
from sightline.backbones.clip import ClipSpace
from sightline.backbones.found_cells import FoundCells
from sightline.backbones.general import General
from sightline.backbones.loading import IN_ANOTHER_FORM
from sightline.backbones.silenced import silenced
from sightline.backbones.towered import Towered
from sightline.backbones.trials import LAYER_TOLERANCE as SHARE
from sightline.checks.doctor.examination import PROBE, PRUNED, AskedPage, Check, LitTokens, declares_cells, layout_words
from sightline.contract.backbones import FIRST_STATES, CheckedPage, check_rows
from sightline.core.prefix import Encoded, Prefix
from sightline.core.selection import PositionPolicy
from sightline.device.work import MemoryGrowth, is_out_of_memory
from sightline.errors import SightlineError
from sightline.geometry.cells import Cells
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import auroc

# Can the losses of both answers be compared? They have to have the same number of tokens.


def one_token_answers(page: AskedPage) -> Check:
    yes, no = YesNo().prompt(page.backbone, PROBE).scored
    passed = len(yes) == len(no) > 0
    return Check(
        passed,
        f"answers: ' yes' scores {len(yes)} tokens and ' no' {len(no)}"
        + ("" if passed else "; mean losses of different lengths are not comparable"),
        {"yes": len(yes), "no": len(no)},
    )


# Does it matter what else is in a batch? Prefixes in the language model, images in the vision tower.


def language_batches(page: AskedPage) -> Check:
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


# Is the unpruned prefix what the model itself reads? Its ids and its logits.


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


# Is the pruned prefix really shorter, and is what is left where it should be? Both position policies.

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


def stage_facts(page: AskedPage, finding_cells: float | None) -> list[dict[str, Any]]:
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


# Does every method that is listed as yes run on this checkpoint, on the rows of the tower that tokens are made from?
#
# Each chooses half of the tokens of one small image, once. One that prunes before the language model must leave a
# prefix as short as its budget says, of numbers; one that prunes between layers is run through them.

SIDE = 224
"""Source pixels along the longer side of the small image: no method needs a large one to run."""
KEEP = "0.5"
ASKED = replace(PROBE, regions=((0.1, 0.2, 0.6, 0.5),))
"""With a box, for methods that read some."""
WRONG_ROWS = "it reads rows of the vision tower that its tokens are not made from"


def signal_rows(page: AskedPage) -> Check | None:
    """None for a model whose tower no signal is read from."""
    if page.backbone.serves(FIRST_STATES) is not None:
        return None
    try:
        check_rows(CheckedPage(page.backbone, page.image, page.encoded))
    except AssertionError as broken:
        return Check(False, f"rows of the tower: {broken}")
    return Check(True, "rows of the tower: black in a token's cell is seen by the rows that its signals are read from")


def each_method(page: AskedPage, listed: Mapping[str, str], rows: Check | None) -> tuple[Check, dict[str, str]]:
    """The check, and the methods as ``listed`` but for those that fail here: ``no`` with the reason."""
    started = time.perf_counter()
    image = page.image.copy()
    image.thumbnail((SIDE, SIDE))
    # The file of masks is made here; one with a trained head is nobody's but its user's.
    ours = ("yes", IN_ANOTHER_FORM)
    tried = [name for name, answer in listed.items() if answer in ours or (name == "masks" and answer[:3] == "yes")]
    failed = {}
    with TemporaryDirectory() as folder:
        shown = SmallImage(page.backbone, image, Path(folder) / "masks.jsonl")
        shown.look_with(tried)
        for name in tried:
            try:
                shown.run(name)
                if rows is not None and not rows.passed and reads_tower(shown.arm(name), page.backbone):
                    failed[name] = WRONG_ROWS
            except Exception as error:
                if is_out_of_memory(error):
                    raise
                failed[name] = f"it fails here ({type(error).__name__}: {error})".splitlines()[0]
    seconds = time.perf_counter() - started
    words = f"methods: {len(tried)} were run once at keep {KEEP} on {image.width} x {image.height} pixels"
    verdict = "all choose as many as they should" if not failed else f"these FAIL: {', '.join(failed)}"
    return (
        Check(not failed, f"{words} in {seconds:.1f} s, {verdict}", {"tried": tried, "failed": failed}),
        {name: f"no: {failed[name]}" if name in failed else answer for name, answer in listed.items()},
    )


def reads_tower(arm: Arm, backbone: Backbone) -> bool:
    return any(need.startswith("vision.") for need in backbone.form(arm.selector).needs)


class SmallImage:
    """One small image and whatever the methods that are tried want to know of it."""

    def __init__(
        self,
        backbone: Backbone,
        image: Image.Image,
        masks: Path,
        keep: str = KEEP,
        clip: ClipSpace | None = None,
        heads: Mapping[str, Path] | None = None,
    ) -> None:
        self.backbone, self.image, self.masks, self.keep, self.clip = backbone, image, masks, keep, clip
        self.heads = heads or {}
        self.encoded, self.together = self.look(), False
        kept = list(range(0, self.encoded.n, 2))
        masks.write_text(json.dumps({"id": ASKED.id, "kept_indices": kept}), encoding="utf-8")

    def look(self, *arms: Arm) -> Encoded:
        """Encoded with what these arms need, in the size in which they are shown images."""
        budget = arms[0].image_budget if arms else None
        pixels = self.backbone.preprocess(self.image, budget=budget)
        return self.backbone.encode([pixels], all_needs(arms, self.backbone))[0]

    def look_with(self, names: list[str]) -> None:
        """One run of the tower for all methods together; where it fails, each has one of its own and fails alone."""
        try:
            self.encoded = self.look(*(arm for arm in map(self.arm, names) if arm.image_budget is None))
            self.together = True
        except Exception as error:
            if is_out_of_memory(error):
                raise

    def arm(self, name: str) -> Arm:
        if not SELECTORS.get(name).needs_budget:
            return parse_arm(f"{name}:file={self.masks}" if name == "masks" else name)
        head = f":head={self.heads[name]}" if name in self.heads else ""
        return parse_arm(f"{name}:{self.keep}{head}")

    def run(self, name: str) -> Trace | None:
        """What it kept; raises where the method does, or where it does not do what its arm says.

        None where no budget can be met by showing so small an image smaller.
        """
        arm = self.arm(name)
        if arm.image_budget is not None and self.backbone.no_cells is not None:
            try:
                self.backbone.fit(self.image.size, arm.image_budget)
            except SightlineError:  # in words, as an audit of so small an image is refused
                return None
        alone = arm.image_budget is not None or not self.together
        encoded = self.look(arm) if alone else self.encoded
        allowed = encoded.usual_n or encoded.n
        expected = arm.selector.count(ASKED.id, allowed, arm.budget)
        if arm.inside:
            (answered,) = Answerer(self.backbone, YesNo(), clip=self.clip).answer(arm, [ASKED], [encoded])
            numbers = [value for value in answered.values.values() if isinstance(value, float)]
            trace, finite = answered.trace, all(map(math.isfinite, numbers))
            kept = trace.k
            if arm.selector.budget_counts == "layers":  # to a layer that reads all, and a token of each
                layers, mean = len(trace.k_layers or ()), trace.spent(arm)
                kept = expected if abs(mean - expected) * layers <= allowed + layers else round(mean)
        else:
            passed = Answerer(self.backbone, Generation(), clip=self.clip).over(arm, [ASKED], [encoded])
            prefix, trace = passed.prefix(0), passed.traces()[0]
            kept, finite = trace.k, bool(prefix.embeds.isfinite().all())
            if prefix.k != kept or len(prefix.embeds) != passed.lengths[0]:
                raise SightlineError(f"a prefix of {len(prefix.embeds)} with {prefix.k} visual tokens for K = {kept}")
        if not finite:
            raise SightlineError("it leaves numbers that are not finite")
        if kept != expected and not (arm.image_budget is not None and 0 < kept <= expected):
            raise SightlineError(f"it keeps {kept} of {allowed} tokens where its budget is {expected}")
        if encoded.placed:
            refuse_inconsistent(trace, encoded.n)
        return trace


def refuse_inconsistent(trace: Trace, n: int) -> None:
    """Masks are of the N tokens, every anchor is one of the K outputs' own, and is among what they were made from.

    One of the K may have no cell: a class token.
    """
    if not len(trace.anchors) == len(trace.lineage) == n:
        raise SightlineError(f"masks of {len(trace.anchors)} and {len(trace.lineage)} of {n} tokens")
    if int(trace.anchors.sum()) not in (trace.k, trace.k - 1):
        raise SightlineError(f"{int(trace.anchors.sum())} tokens are anchors of {trace.k} outputs")
    if bool((trace.anchors & ~trace.lineage).any()):
        raise SightlineError("an anchor is not among what its output is made from")


# Does a word on the page light up the tokens whose cells it stands on?
#
# The page is encoded with and without one bright word, drawn where the map says that some token looks. Among tokens
# whose cells lie on the word and tokens whose cells are clear of it, the change must tell one from the other: AUROC,
# the probability that a token on the word changes more than one off it. With attention silenced a token changes for
# what it sees itself; a map that is transposed, or whose tiles are shuffled, names other tokens than those that
# change. With attention every token may change, so that figure is a fact and decides nothing.

PLACES, MOST_PLACES, ATTENDING = 8, 32, 3
"""Words drawn one after the other: at least so many, at most so many where there are many tiles, with attention."""
LEAST = 0.9
SMALLEST = (32, 16)
"""(width, height) of the smallest word in source pixels."""
BRIGHT = ((255, 214, 0), (0, 40, 255))
REACH = 3
"""Source pixels beyond a cell that a resampling filter may still read."""
GOLDEN = (math.sqrt(5) - 1) / 2

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class BrightWord:
    box: Box
    on: np.ndarray
    """(N,) bool: tokens whose cells lie on the word, for half of the cell or of the word."""
    off: np.ndarray
    """(N,) bool: tokens clear of it. Those in between do not count."""

    @staticmethod
    def at(box: Box, cells: Cells, size: tuple[int, int]) -> BrightWord:
        left, top, right, bottom = box
        wide = np.minimum(cells[:, 2], right) - np.maximum(cells[:, 0], left)
        high = np.minimum(cells[:, 3], bottom) - np.maximum(cells[:, 1], top)
        sides = cells[:, 2:] - cells[:, :2]
        smaller = np.minimum(sides.prod(1), (right - left) * (bottom - top))
        common = wide.clip(min=0) * high.clip(min=0)
        reach = np.maximum(sides / 4, REACH / np.array(size))
        return BrightWord(box, (common > 0) & (common >= smaller / 2), (wide < -reach[:, 0]) | (high < -reach[:, 1]))

    def told_by(self, change: np.ndarray) -> float:
        counted = self.on | self.off
        return auroc(self.on[counted], change[counted])


def bright_word(page: AskedPage) -> Check:
    return lit_tokens(page)[0]


def lit_tokens(page: AskedPage) -> tuple[Check, LitTokens | None]:
    """The check, and of its worst word what it changed, to be looked at."""
    words = words_on(page.encoded.cells, page.encoded.layout, page.image.size)
    if not words:
        return Check(False, "bright word: no place on the page is seen by some tokens and not by others"), None
    drawn = [with_word(page.image, word.box) for word in words]
    with silenced(page.backbone.model):
        plain = features(page.backbone, page.image)
        changes = [change(plain, features(page.backbone, image)) for image in drawn]
    told = [word.told_by(each) for word, each in zip(words, changes, strict=True)]
    plain = features(page.backbone, page.image)
    attending = [
        word.told_by(change(plain, features(page.backbone, image)))
        for word, image in list(zip(words, drawn, strict=True))[:ATTENDING]
    ]
    worst = int(np.argmin(told))
    verdict = "lights up the tokens that look there" if told[worst] >= LEAST else "lights up OTHER tokens"
    check = Check(
        told[worst] >= LEAST,
        f"bright word: at {len(words)} places it {verdict}, smallest AUROC {told[worst]:.3f} with attention silenced "
        f"(at least {LEAST}), mean {np.mean(attending):.3f} with attention",
        {"places": len(words), "silenced": told, "attending": attending, "least": LEAST},
    )
    return check, LitTokens(drawn[worst], words[worst].box, changes[worst])


def words_on(cells: Cells, layout: tuple[tuple[int, int], ...], size: tuple[int, int]) -> list[BrightWord]:
    """Places over cells of every block, away from the diagonal, on which a transposed map would be right."""
    tokens: list[int] = []
    first = 0
    for rows, columns in layout:
        tokens.append(first + int((1 - GOLDEN) * rows * columns))
        first += rows * columns
    wanted = min(max(len(tokens), PLACES), MOST_PLACES)
    tokens = [tokens[round(place)] for place in np.linspace(0, len(tokens) - 1, min(len(tokens), MOST_PLACES))]
    tokens += [int(len(cells) * (number * GOLDEN % 1)) for number in range(1, 3 * PLACES)]
    words = (BrightWord.at(word_box(cells[token], size), cells, size) for token in dict.fromkeys(tokens))
    return [word for word in words if word.on.any() and word.off.any()][:wanted]


def word_box(cell: np.ndarray, size: tuple[int, int]) -> Box:
    """The cell in whole pixels, or around its middle as much as a word needs; fractions of the image."""
    edges = []
    for axis in (0, 1):
        low, high = float(cell[axis]) * size[axis], float(cell[axis + 2]) * size[axis]
        lacking = max(0.0, SMALLEST[axis] - (high - low)) / 2
        edges.append((max(0, math.floor(low - lacking)), min(size[axis], math.ceil(high + lacking))))
    (left, right), (top, bottom) = edges
    return left / size[0], top / size[1], right / size[0], bottom / size[1]


def with_word(image: Image.Image, box: Box) -> Image.Image:
    """A copy with a bright label, of the two colours that which differs more from what is there."""
    drawn = image.convert("RGB")
    left, top, right, bottom = (round(edge * drawn.size[place % 2]) for place, edge in enumerate(box))
    there = np.asarray(drawn.crop((left, top, right, bottom))).mean((0, 1))
    colour = max(BRIGHT, key=lambda each: float(np.abs(there - each).sum()))
    draw = ImageDraw.Draw(drawn)
    draw.rectangle((left, top, right - 1, bottom - 1), fill=colour)
    font = ImageFont.load_default(max(8, min(bottom - top, (right - left) // 2) * 0.7))
    draw.text(((left + right) / 2, (top + bottom) / 2), "WORD", fill=(20, 20, 20), font=font, anchor="mm")
    return drawn


def features(backbone: Backbone, image: Image.Image) -> np.ndarray:
    """(N, D) visual tokens, as an audit gets them."""
    tokens: np.ndarray = backbone.encode([backbone.preprocess(image)])[0].tokens.float().cpu().numpy()
    return tokens


def change(plain: np.ndarray, changed: np.ndarray) -> np.ndarray:
    """(N,)"""
    length: np.ndarray = np.linalg.norm(changed - plain, axis=1)
    return length


# Does every token have a cell, and the right one? Counts, and cells by ramps beside those that are declared.

ALLOWED = 1.0
"""Source pixels that an edge may be off."""


def cell_count(page: AskedPage) -> Check:
    encoded = page.encoded
    blocks = sum(rows * columns for rows, columns in encoded.layout)
    inside = bool(((encoded.cells >= 0) & (encoded.cells <= 1)).all())
    counted = encoded.n == len(encoded.cells) == blocks and all(len(level) == encoded.n for level in encoded.deepstack)
    return Check(
        counted and inside,
        f"token-to-cell map: {encoded.n} visual tokens, {len(encoded.cells)} cells, "
        f"{layout_words(encoded.layout)}, {len(encoded.deepstack)} DeepStack levels"
        + ("" if inside else "; some cells lie outside the image"),
        {"tokens": encoded.n, "cells": len(encoded.cells), "in_layout": blocks, "inside": inside},
    )


def cells_by_ramps(page: AskedPage) -> Check | None:
    """None for a model whose features cannot be traced to pixels: the bright word alone then tries its cells."""
    found, audited = page.found, page.encoded.cells
    if found is None:
        return None
    count, took = int(found.sourced.sum()), f"by ramps in {found.seconds:.2f} s"
    measured = {"declared": declares_cells(page.backbone), "found": count, "seconds": found.seconds}
    if count != len(audited):
        return Check(False, f"cells: {len(audited)} are audited, {count} found {took}", measured)
    difference = largest_difference(found, audited, page.image.size)
    passed = difference <= ALLOWED
    words = f"those declared {'are' if passed else 'are NOT'} those found {took}"
    if not declares_cells(page.backbone):
        words = f"{count} found {took}, none declared" if passed else f"those audited are NOT those found {took}"
    return Check(
        passed,
        f"cells: {words}, largest difference {difference:.2f} source pixels (allowed {ALLOWED:g})",
        {**measured, "difference": difference, "allowed": ALLOWED},
    )


def largest_difference(found: FoundCells, declared: Cells, size: tuple[int, int]) -> float:
    """In source pixels. Cells that both say are empty, since padding alone is seen there, may lie anywhere."""
    cells = found.cells[found.sourced]
    empty = _empty(cells) & _empty(declared)
    return float(np.abs((cells - declared) * np.tile(size, 2))[~empty].max(initial=0.0))


def _empty(cells: Cells) -> np.ndarray:
    none: np.ndarray = (cells[:, 2] <= cells[:, 0]) | (cells[:, 3] <= cells[:, 1])
    return none
