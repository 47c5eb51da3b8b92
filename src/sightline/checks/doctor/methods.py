"""Does every method that is listed as yes run on this checkpoint, on rows of the tower that tokens are made from?

Each chooses half of the tokens of one small image, once. One that prunes before the language model must leave a
prefix as short as its budget says, of numbers; one that prunes between layers is run through them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import Trace, all_needs
from sightline.answering.scorers.spoken import Generation
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.arms.arm import Arm
from sightline.backbones import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.loading import IN_ANOTHER_FORM
from sightline.checks.doctor.examination import PROBE, Check, ExaminedPage
from sightline.core.prefix import Encoded
from sightline.device.work import is_out_of_memory
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

SIDE = 224
"""Source pixels along the longer side of the small image: no method needs a large one to run."""
KEEP = "0.5"
ASKED = replace(PROBE, regions=((0.1, 0.2, 0.6, 0.5),))
"""With a box, for methods that read some."""
WRONG_ROWS = "it reads rows of the vision tower that its tokens are not made from"


def each_method(page: ExaminedPage, listed: Mapping[str, str], rows: Check | None) -> tuple[Check, dict[str, str]]:
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
