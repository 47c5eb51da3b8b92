"""The one loop over shards, which ``sightline run`` writes the rows of and ``sightline bench sweep`` times; the rows.

An image is encoded once for all its probes and arms, and once more for each version that an intervention shows. Arms
are answered one after the other over the shard's probes, so the batches of an arm do not depend on which other arms
run: amending a run, or reordering its arms, changes no row. While the device works on one arm the next one is handed to
it, and the host prepares the next shard.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from PIL import Image

from sightline.answering.answerer import Answered, Answerer, Collect
from sightline.answering.materialise import all_needs
from sightline.arms.arm import Arm
from sightline.auditing.shards import Shard, Task, image_key, region_geometries
from sightline.backbones import Backbone, Pixels
from sightline.core.prefix import Encoded
from sightline.core.probe import ORIGINAL, Box, Probe
from sightline.core.selection import NO_BOXES, arm_regime
from sightline.device.work import FEWER, halved, in_halves, memory_ran_out, one_ahead, prepared_ahead, setting_up
from sightline.errors import OutageError, SightlineError
from sightline.geometry.coverage import Geometry, RegionGeometry
from sightline.geometry.marks import surroundings
from sightline.probes.images import stored_as
from sightline.store.shard_files import pack_mask

# What a run keeps of an image for reports: a small preview, and the regions sharp where the preview blurs them.

PREVIEW_SIDE = 640
PREVIEW_QUALITY = 60
DETAIL_SIDE = 480
DETAIL_QUALITY = 72


@dataclass(frozen=True)
class Detail:
    """A region with its surroundings, cut out before the image was shrunk."""

    jpeg: bytes
    box: Box
    """The part of the image that it shows, in fractions of it."""


def preview(image: Image.Image, shown: tuple[int, int] | None = None) -> bytes:
    """A JPEG small enough to inline in a report and large enough to see a page. The image is shrunk in place.

    ``shown`` is the (width, height) that the model is shown of an image made smaller for it: this shows no more.
    """
    longest = PREVIEW_SIDE if shown is None else min(PREVIEW_SIDE, max(shown))
    image.thumbnail((longest, longest))
    return stored_as(image, "JPEG", quality=PREVIEW_QUALITY, optimize=True)


def details(image: Image.Image, regions: Iterable[Box]) -> list[Detail]:
    """The distinct regions, each as sharp as a magnified word needs; none of an image that a preview shows whole."""
    if max(image.size) <= PREVIEW_SIDE:
        return []
    found = []
    for region in dict.fromkeys(regions):
        x1, y1, x2, y2 = surroundings([region], *image.size)
        pixels = (int(x1), int(y1), min(image.width, int(x2) + 1), min(image.height, int(y2) + 1))
        crop = image.crop(pixels)
        crop.thumbnail((DETAIL_SIDE, DETAIL_SIDE), Image.Resampling.LANCZOS)
        left, top, right, bottom = pixels
        box = (left / image.width, top / image.height, right / image.width, bottom / image.height)
        found.append(Detail(stored_as(crop, "JPEG", quality=DETAIL_QUALITY, optimize=True), box))
    return found


REHEARSAL = 2
"""Probes that a new arm is rehearsed on."""


@dataclass(frozen=True)
class Seen:
    """What is kept of an image file for reports, taken while its pixels are at hand."""

    digest: str
    pixels: str | None
    """Digest of the image as it was decoded; None of one that was painted over."""
    preview: bytes
    details: Sequence[Detail] = ()


@dataclass(frozen=True)
class Prepared:
    """What the host did for a shard before the device sees it."""

    shard: Shard
    pixels: list[Pixels]
    seen: list[Seen] | None = None
    """None when the run has records of these images already, or nobody keeps any."""
    boxes_ms: Mapping[str, float] | None = None
    """Per image what a text detector took; None when nothing was detected."""
    bad: Mapping[str, str] = field(default_factory=dict)
    """Images of the shard that cannot be read, with the reason; neither they nor their probes are in ``shard``."""
    files: Mapping[str, ImageFile] = field(default_factory=dict)
    """By name, of images that may be left out because the model's own code cannot read them; no other is."""

    def without(self, bad: Mapping[str, str]) -> Prepared:
        """Less these images, which the model's own code cannot read, for the reasons given."""
        stay = [probe.image not in bad for probe in self.shard.images]
        pixels = [item for item, stays in zip(self.pixels, stay, strict=True) if stays]
        seen = None if self.seen is None else [item for item, stays in zip(self.seen, stay, strict=True) if stays]
        return replace(self, shard=self.shard.without(bad), pixels=pixels, seen=seen, bad={**self.bad, **bad})


class ImageFile(NamedTuple):
    place: str
    digest: str

    def unread(self, error: Exception) -> str:
        """Why the model cannot read it, in one line; anything else that went wrong is raised."""
        if isinstance(error, OutageError):
            raise type(error)(f"image {self.place}: {error}") from None
        if isinstance(error, torch.AcceleratorError) or memory_ran_out(error):
            raise error
        said = (str(error).strip().splitlines() or [""])[0]
        known = isinstance(error, SightlineError)
        reason = said if known else f"the model's own code cannot read it ({type(error).__name__}: {said})"
        return f"image {self.place}: {reason}"


@dataclass(frozen=True)
class LoopOptions:
    batch_tokens: int
    batch_images: int = 1
    rehearsed: set[str] | None = None
    """Arms whose first use is rehearsed, for a device that compiles and loads kernels then; they are removed as they
    run. None: nothing is rehearsed."""
    setup_ms: list[float] = field(default_factory=list)
    """What rehearsals took."""
    meanwhile: Callable[[Shard], None] | None = None
    """What is done before a shard is asked for that the host still prepares."""
    failed: set[tuple[str, str]] = field(default_factory=set)
    """Tasks, by key, and arms whose work raised an error; "" for an arm where it was the images of all of them."""


@dataclass
class ShardWork:
    """A shard's images, encoded when the first of its arms is launched and shared by all of them."""

    answerer: Answerer
    options: LoopOptions
    task: Task
    future: Future[Prepared]

    @property
    def needs(self) -> frozenset[str]:
        return all_needs(self.task.arms, self.answerer.backbone)

    _readable: Prepared | None = field(init=False, default=None)

    @property
    def prepared(self) -> Prepared:
        """Once its images are encoded, without those that the model cannot read."""
        return self._readable or self.future.result()

    @property
    def shard(self) -> Shard:
        return self.prepared.shard

    @cached_property
    def images(self) -> dict[str, Encoded]:
        """Each distinct image through the vision tower, once."""
        try:
            encoded = self._encode(self.prepared.pixels)
        except Exception:
            bad = self._unread()
            if not bad:
                raise
            self._readable = self.prepared.without(bad)
            encoded = self._encode(self.prepared.pixels)
        return {image_key(probe): item for probe, item in zip(self.shard.images, encoded, strict=True)}

    def _encode(self, pixels: Sequence[Pixels]) -> list[Encoded]:
        return encode_all(self.answerer.backbone, pixels, self.needs, self.options.batch_images)

    def _unread(self) -> dict[str, str]:
        """Images that the model's own code fails on, tried one by one, with the reason."""
        bad = {}
        for probe, item in zip(self.shard.images, self.prepared.pixels, strict=True):
            try:
                self._encode([item])
            except Exception as error:
                if probe.image not in self.prepared.files:
                    raise
                bad[probe.image] = self.prepared.files[probe.image].unread(error)
        return bad

    @property
    def encoded(self) -> list[Encoded]:
        """The image of every probe."""
        images = self.images
        return [images[image_key(probe)] for probe in self.shard.probes]

    @cached_property
    def geometries(self) -> list[RegionGeometry | None]:
        """Of every probe, for whoever measures coverage."""
        return region_geometries(self.shard.probes, self.encoded)

    def launch(self, arm: Arm) -> Collect:
        """Hands the arm to the device. An error here or while its answers are read is the arm's, unless an image's."""
        with self._blaming(""):
            if not self.shard.probes:  # none of its images can be read
                return list
            with self._blaming(arm.text):
                self._set_up(arm)
            images = self.encoded  # behind the rehearsal, which loads kernels of the vision tower too
            if not images:
                return list
            with self._blaming(arm.text):
                collect = self.answerer.launch(arm, self.shard.probes, images, self.options.batch_tokens)

        def read() -> list[Answered]:
            with self._blaming(arm.text):
                return collect()

        return read

    @contextmanager
    def _blaming(self, arm: str) -> Iterator[None]:
        self.options.failed.add((self.task.key, arm))
        yield
        self.options.failed.discard((self.task.key, arm))

    def _set_up(self, arm: Arm) -> None:
        if self.options.rehearsed is not None and arm.text in self.options.rehearsed:
            self.options.rehearsed.remove(arm.text)
            with setting_up(self.answerer.backbone.language.device, self.options.setup_ms):
                # Over two probes whose answers nobody reads: kernels are loaded before any time of it is recorded.
                if first := self._first:
                    self.answerer.answer(arm, self.shard.probes[: len(first)], first, self.options.batch_tokens)

    @cached_property
    def _first(self) -> list[Encoded]:
        """The images of the first probes, encoded apart from the others; none where the model fails on one of them,
        which is said when all are encoded."""
        pixels = {image_key(p): item for p, item in zip(self.shard.images, self.prepared.pixels, strict=True)}
        wanted = {image_key(probe): probe.image for probe in self.shard.probes[:REHEARSAL]}
        try:
            return self._encode([pixels[image_key(probe)] for probe in self.shard.probes[:REHEARSAL]])
        except Exception as error:
            for name in wanted.values():
                if name not in self.prepared.files:
                    raise
                self.prepared.files[name].unread(error)
            return []


# Images through the vision tower in batches: alike shapes together, halved when memory runs out.


def encode_all(
    backbone: Backbone, pixels: Sequence[Pixels], needs: Iterable[str] = (), batch_images: int = 1
) -> list[Encoded]:
    """Every image once, in the order given.

    One image per call (the default) makes an image's tokens independent of its neighbours to the last bit; batches
    are faster on a GPU and differ by rounding. Images of unlike shapes share one where the tower takes them.
    """
    wanted = frozenset(needs)

    def too_large(index: int) -> str:
        size = "x".join(str(edge) for edge in pixels[index].size)
        return f"a single image of {size} pixels; use a smaller image size or dtype{FEWER}"

    def encode(group: list[int]) -> list[Encoded]:
        return backbone.encode([pixels[i] for i in group], wanted)

    def patches(group: list[int]) -> int:
        return sum(math.prod(pixels[i].grid) for i in group)

    groups = _alike([backbone.shared_shape(item) for item in pixels], max(1, batch_images))
    done = in_halves(groups, encode, too_large, patches, backbone.limits["patches"])
    smaller = halved(groups, done)
    encoded = {
        index: replace(item, halved=True) if index in smaller else item
        for group, items in done
        for index, item in zip(group, items, strict=True)
    }
    return [encoded[i] for i in range(len(pixels))]


def _alike(shapes: Sequence[tuple[int, ...]], batch_images: int) -> list[list[int]]:
    """Indices of images that may share a call of the tower, at most ``batch_images`` together, by first appearance."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for index, shape in enumerate(shapes):
        alike.setdefault(shape, []).append(index)
    return [
        members[first : first + batch_images]
        for members in alike.values()
        for first in range(0, len(members), batch_images)
    ]


def answer_shards(
    answerer: Answerer, tasks: Iterable[Task], prepare: Callable[[Shard], Prepared], options: LoopOptions
) -> Iterator[tuple[ShardWork, Arm, list[Answered]]]:
    """Every task's arms with their answers, in order. Drop the work before asking for the next: its images go then."""

    def launches() -> Iterator[tuple[tuple[ShardWork, Arm], Callable[[], Collect]]]:
        for task, prepared in prepared_ahead(tasks, lambda task: prepare(task.shard)):
            if options.meanwhile is not None:
                options.meanwhile(task.shard)
            work = ShardWork(answerer, options, task, prepared)
            for arm in task.arms:
                yield (work, arm), partial(work.launch, arm)

    for (work, arm), answers in one_ahead(launches()):
        yield work, arm, answers
        del work, answers


# One row per probe and arm, one record per image: plain dictionaries in the shape of ``sightline.core.row``.

GEOMETRY = (
    "visible", "ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1",
    "worst_region", "all_half", "legibility",
)  # fmt: skip
NO_POLICY = "none"
"""The policy of an arm whose budget is the same for all samples."""
ROW_FACTS = ("positions", "profile", "model", "model_type", "weight_digest", "device", "dtype", "attention")
"""What every row repeats of how the run was made."""


def row_records(
    arm: Arm,
    work: ShardWork,
    answers: Sequence[Answered],
    facts: Mapping[str, Any],
    boxes_ms: Mapping[str, float] | None,
) -> list[dict[str, Any]]:
    """The rows of one arm over a shard.

    ``boxes_ms`` is what a text detector took per image, for an arm whose selector reads its boxes.
    """
    rows = []
    ran = work.answerer.backbone.form(arm.selector)
    form = {
        "form": None if ran is arm.selector else ran.form,
        "arguments": replace(arm, selector=cast(Any, ran)).arguments,
    }
    each = zip(work.shard.probes, work.encoded, work.geometries, answers, strict=True)
    for probe, image, regions, answered in each:
        trace = answered.trace
        geometry = regions.measure(trace.lineage, trace.anchors, trace.shares) if regions is not None else None
        detection = None if boxes_ms is None else boxes_ms.get(probe.image)
        row = _row(arm, probe, image, answered, geometry, facts)
        rows.append({**row, **form, **boxes_read(arm, facts, detected=boxes_ms is not None), "boxes_ms": detection})
    return rows


def _row(
    arm: Arm, probe: Probe, image: Encoded, answered: Answered, geometry: Geometry | None, facts: Mapping[str, Any]
) -> dict[str, Any]:
    trace = answered.trace
    layers = trace.k_layers
    halved = answered.halved or image.halved
    return {
        "arm": arm.text,
        "plain_arm": arm.plain,
        "selector": arm.selector.name,
        "role": arm.selector.role,
        **_budget(arm, image, answered),
        "keep": _share(trace.spent(arm), image),
        "n_tokens": image.full_n or None,
        "k_tokens": trace.k if image.full_n else None,
        "k_layers": layers,
        "keep_layer_mean": _share(float(np.mean(layers)) if layers else trace.k, image),
        "intervention": _intervention(arm, probe),
        "probe_id": probe.id,
        "image_id": probe.image_id,
        "image_key": image_key(probe, arm.image_budget),
        "view": probe.view,
        "label": probe.label,
        "kind": probe.kind,
        **answered.values,
        "query_found": answered.query_found,
        "n_regions": len(probe.regions),
        # Null, not zero, for a probe without regions: nothing was measured.
        **{name: None if geometry is None else getattr(geometry, name) for name in GEOMETRY},
        **({} if image.placed or image.sampling is None else {"legibility": image.sampling.legibility(probe.regions)}),
        "kept_mask": pack_mask(trace.anchors) if image.placed else b"",
        "lineage_mask": pack_mask(trace.lineage) if trace.merges else None,
        **_scores(arm, trace.scores),
        "sequence_full": trace.sequence_full or None,
        "sequence_pruned": trace.sequence_pruned or None,
        "preprocess_ms": image.preprocess_ms,
        "vision_ms": image.vision_ms,
        "signal_ms": trace.signal_ms,
        "select_ms": trace.select_ms,
        "materialise_ms": trace.materialise_ms,
        "language_ms": answered.language_ms,
        **{name: facts[name] for name in ROW_FACTS},
        "positions": arm.positions(facts["positions"]) if facts["positions"] else answered.positions,
        "versions": json.dumps(facts["versions"]),
        "conditions": json.dumps({**facts["conditions"], **({"halved": True} if halved else {})}),
    }


def _share(kept: float, image: Encoded) -> float | None:
    """Of the image's visual tokens; None where an engine does not count them."""
    return kept / image.full_n if image.full_n else None


def _scores(arm: Arm, scores: np.ndarray | None) -> dict[str, Any]:
    """As few bytes as hold every score exactly: a replay at another budget must not meet new ties."""
    if scores is None:
        return {"scores": None, "scores_rule": None}
    short = scores.astype("<f4")
    exact = bool((short == scores).all())
    rule = "top" if getattr(arm.selector, "plain_top", False) else "other"
    return {"scores": (short if exact else scores.astype("<f8")).tobytes(), "scores_rule": rule}


def _budget(arm: Arm, image: Encoded, answered: Answered) -> dict[str, Any]:
    """What was asked for, and what was spent: of a policy all of its passes, else the one."""
    k, spent = answered.trace.spent(arm), answered.spent
    replayed = arm.selector.role == "replay" or arm.deployed
    budget = repr(_share(k, image)) if replayed else arm.requested
    final = arm.budget if spent is None else spent.levels[-1]
    return {
        "budget": budget,
        "keep_requested": None if replayed else final.keep,
        "policy": NO_POLICY if arm.policy is None else arm.policy.name,
        "levels": budget if spent is None else "/".join(map(str, spent.levels)),
        "keep_spent": _share(k if spent is None else sum(spent.kept), image),
        "decided_on": None if spent is None else spent.decided_on,
    }


def boxes_read(arm: Arm, facts: Mapping[str, Any], detected: bool) -> dict[str, str]:
    """What the arm was shown, and which regime that makes it."""
    selector = arm.selector
    source = NO_BOXES if selector.reads_boxes is False else facts["box_source"]
    return {"box_source": source, "regime": arm_regime(selector.role, selector.reads_boxes, detected)}


def _intervention(arm: Arm, probe: Probe) -> str:
    """The arm's own; for a probe that is about a control image already, that image's name."""
    if arm.intervention is not None:
        return str(arm.intervention)
    return "none" if probe.view == ORIGINAL else probe.view


def image_records(work: ShardWork) -> list[dict[str, Any]]:
    """One record per distinct image of a shard."""
    prepared, records = work.prepared, []
    for probe, pixels, seen in zip(prepared.shard.images, prepared.pixels, prepared.seen or (), strict=True):
        encoded = work.images[image_key(probe)]
        records.append(
            {
                "image_key": image_key(probe, prepared.shard.image_budget),
                "image": probe.image,
                "image_id": probe.image_id,
                "digest": seen.digest,
                "pixels": seen.pixels,
                "width": pixels.size[0],
                "height": pixels.size[1],
                "layout": json.dumps(encoded.layout if encoded.placed else []),
                "cells": encoded.cells.astype("<f4").tobytes() if encoded.placed else b"",
                "preview": seen.preview,
                "details": [detail.jpeg for detail in seen.details],
                "detail_boxes": [list(detail.box) for detail in seen.details],
            }
        )
    return records
