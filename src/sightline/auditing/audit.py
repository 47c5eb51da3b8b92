"""The audit, top to bottom: probes -> encode -> select -> materialise -> score -> geometry -> rows.

An image is encoded once for all its probes and arms, and once more for each version that an intervention asks for.
Arms are scored one after the other over the shard's probes, so the batches of an arm do not depend on which other arms
run: amending a run, or reordering its arms, changes no row. The next arm is handed to the device before the answers of
the previous one are read.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

import sightline
from sightline.answering.encoding import encode_all
from sightline.answering.launching import Collect, launch_arm
from sightline.answering.select import SelectStep, all_needs
from sightline.arms.arm import Arm, recorded_arm
from sightline.arms.plan import Plan, plan_arms, refuse_unusable
from sightline.auditing.config import AuditConfig
from sightline.auditing.rows import image_records, row_records
from sightline.auditing.shards import Shard, check_images, image_key, make_shards, with_boxes
from sightline.backbones import Backbone, ImageOptions, Pixels, load_backbone, weight_digest
from sightline.backbones.clip import ClipSpace
from sightline.backbones.execution import use_execution
from sightline.backbones.loading import checkpoint_folder, model_type
from sightline.backbones.vision_execution import use_vision_execution
from sightline.boxes.beside import BoxesBeside
from sightline.boxes.sources import Shown, check_source, reads_boxes
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.probe import Box, Probe
from sightline.device.kernels.causal import planless
from sightline.device.pipeline import one_ahead, prepared_ahead
from sightline.device.stopwatch import setting_up
from sightline.geometry.coverage import RegionGeometry
from sightline.probes import ProbeSet, read_probes
from sightline.probes.images import open_image
from sightline.probes.probe_file import probes_text
from sightline.progress import Progress
from sightline.store import Run, RunFolder, load_run


def audit(config: AuditConfig) -> Run:
    """Runs (or resumes, or amends) an audit and returns the finished run."""
    plan = plan_arms(
        config.arms,
        interventions=config.interventions,
        controls=config.matched_controls,
        seed=config.seed,
        profile=config.profile,
        model_type=model_type(checkpoint_folder(config.model)) if config.profile == "artifact" else "",
    )
    check_source(config.box_source)
    probes = read_probes(config.probes, image_prefix=config.image_prefix or None)
    shards = make_shards(probes.probes, config.shard_images, config.limit)
    check_images(config.images, shards)
    refuse_unusable(plan.arms, (probe for shard in shards for probe in shard.probes))
    for arm in plan.arms:
        arm.refuse_execution(config.execution, "leave it out or use --execution eager")
    with BoxesBeside(config.box_source, config.images, [p for shard in shards for p in shard.probes]) as boxes:
        return audit_shards(config, plan, probes, shards, boxes)


def audit_shards(config: AuditConfig, plan: Plan, probes: ProbeSet, shards: list[Shard], boxes: BoxesBeside) -> Run:
    """The audit once its input has been checked, while a text detector may be at work beside it."""
    shown: Shown | None = None
    if not boxes.detects:
        shards, shown = with_boxes(shards, boxes)
    digests = input_digests(plan.arms)
    folder = RunFolder(config.out)
    recorded = folder.manifest() if folder.exists else {}
    source = checkpoint_folder(config.model)
    backbone = load_backbone(
        str(source), dtype=config.dtype, device=config.device, attention=config.attention, options=image_options(config)
    )
    execution = use_execution(backbone.language, config.execution, dynamic=True)
    use_vision_execution(backbone, execution, dynamic=True)
    clip = ClipSpace(config.clip, backbone.language.device) if config.clip else None
    step = SelectStep(backbone, clip)
    step.refuse_unserved(plan.arms)
    facts = reporting_contract(config, backbone, weight_digest(source))
    names = folder.open(
        {
            **facts,
            "probe_digest": probes.digest,
            "shards": len(shards),
            "shard_images": config.shard_images,
            "limit": config.limit,
            "execution": config.execution,
            "batch_images": config.batch_images,
            "image_options": backbone.options.as_dict(),
            "seed": config.seed,
            "images": str(config.images),
            "boxes": dict(shown.facts) if shown is not None else recorded.get("boxes", {}),
            "matched_controls": list(dict.fromkeys([*recorded.get("matched_controls", []), *plan.controls])),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        },
        [arm.text for arm in plan.arms],
        probe_bytes(probes, shards),
    )
    known = {arm.text: arm for arm in plan.arms}
    # Arms of an earlier command under the same folder are finished too, so that a killed amendment never leaves holes.
    arms = [known[name] if name in known else recorded_arm(name) for name in names]
    todo = work_left(folder, shards, arms)
    resumed = {arm.text: arm for _, missing in todo for arm in missing if arm.text not in known}
    folder.settle_inputs({**digests, **input_digests(resumed.values())})
    if backbone.language.device.type == "cpu":
        boxes.wait()  # the same cores search and score: one after the other, so that times mean something
    with planless():  # an audit's shapes hardly ever recur
        run_shards(config, folder, step, todo, facts, boxes, execution.setup_ms)
    if boxes.detects:
        shards, shown = with_boxes(shards, boxes)
        folder.describe_boxes(shown.facts, probe_bytes(probes, shards))
    if execution.setup_ms:
        folder.add_setup(sum(execution.setup_ms))
        print(f"{config.execution}: set-up took {sum(execution.setup_ms) / 1e3:.1f} s", file=sys.stderr, flush=True)
    return load_run(config.out)


def run_shards(
    config: AuditConfig,
    folder: RunFolder,
    step: SelectStep,
    todo: Sequence[tuple[Shard, list[Arm]]],
    facts: dict[str, Any],
    boxes: BoxesBeside,
    setup_ms: list[float],
) -> None:
    total = sum(len(shard.probes) * len(missing) for shard, missing in todo)
    new = {arm.text for _, missing in todo for arm in missing} if step.queues else set()

    def work() -> Iterator[tuple[tuple[ShardWork, Arm], Callable[[], Collect]]]:
        for (_, missing), prepared in prepared_ahead(todo, lambda item: prepare(config, step.backbone, boxes, item[0])):
            here = ShardWork(config, step, all_needs(missing), prepared, new, setup_ms)
            for arm in missing:
                yield (here, arm), partial(here.launch, arm, arm.positions(facts["positions"]))

    with Progress("auditing", total, "rows") as progress:
        for (here, arm), scored in one_ahead(work()):
            shard, pixels, boxes_ms = here.prepared.result()
            if not folder.has_images(shard.index, shard.view):
                records = image_records(config.images, shard, here.pictures, pixels)
                folder.write_images(shard.index, shard.view, records)
            contract = {**facts, "positions": arm.positions(facts["positions"])}
            billed = boxes_ms if reads_boxes(arm.selector) else None
            rows = row_records(arm, shard.probes, here.encoded, here.geometries, scored, contract, billed)
            folder.write_rows(arm.text, shard.index, rows)
            progress.advance(len(shard.probes))
            del here  # the next shard may need the memory of this one's pictures


@dataclass
class ShardWork:
    """A shard's pictures, encoded when the first of its arms is launched and shared by all of them."""

    config: AuditConfig
    step: SelectStep
    needs: frozenset[str]
    prepared: Future[Prepared]
    new: set[str]
    """Arms that have never run, of an audit whose device compiles and loads kernels when they are first used."""
    setup_ms: list[float]

    @property
    def shard(self) -> Shard:
        return self.prepared.result().shard

    @property
    def _pixels(self) -> list[Pixels]:
        return self.prepared.result().pixels

    @cached_property
    def pictures(self) -> dict[str, Encoded]:
        """Each distinct picture through the vision tower, once."""
        encoded = encode_all(self.step.backbone, self._pixels, self.needs, self.config.batch_images)
        return {image_key(probe): item for probe, item in zip(self.shard.pictures, encoded, strict=True)}

    @property
    def encoded(self) -> list[Encoded]:
        """The picture of every probe."""
        return [self.pictures[image_key(probe)] for probe in self.shard.probes]

    @cached_property
    def geometries(self) -> list[RegionGeometry | None]:
        return region_geometries(self.shard.probes, self.encoded)

    @cached_property
    def _two(self) -> list[Encoded]:
        """The pictures of the first two probes, encoded apart from the others."""
        seen = {image_key(probe): item for probe, item in zip(self.shard.pictures, self._pixels, strict=True)}
        pixels = [seen[image_key(probe)] for probe in self.shard.probes[:2]]
        return encode_all(self.step.backbone, pixels, self.needs, self.config.batch_images)

    def launch(self, arm: Arm, policy: PositionPolicy) -> Collect:
        if arm.text in self.new:
            # Over two probes, for nothing: kernels are compiled and loaded before any time of this arm is recorded.
            self.new.remove(arm.text)
            with setting_up(self.step.backbone.language.device, self.setup_ms):
                launch_arm(self.step, arm, self.shard.probes[:2], self._two, policy, self.config.batch_tokens)()
        return launch_arm(self.step, arm, self.shard.probes, self.encoded, policy, self.config.batch_tokens)


def input_digests(arms: Iterable[Arm]) -> dict[str, str]:
    """Of the arms that read a file, such as replayed masks."""
    digests = {arm.text: arm.input_digest() for arm in arms}
    return {text: digest for text, digest in digests.items() if digest is not None}


def work_left(folder: RunFolder, shards: Sequence[Shard], arms: Sequence[Arm]) -> list[tuple[Shard, list[Arm]]]:
    """What is not on disk yet: arms that look at the same version of a shard's pictures together."""
    todo = []
    for shard in shards:
        missing = [arm for arm in arms if not folder.has_rows(arm.text, shard.index)]
        for view in dict.fromkeys(arm.view for arm in missing):
            alike = [arm for arm in missing if arm.view == view]
            todo.append((shard.under(alike[0].intervention), alike))
    return todo


class Prepared(NamedTuple):
    """What the host did for a shard before the device sees it."""

    shard: Shard
    pixels: list[Pixels]
    boxes_ms: Mapping[str, float] | None
    """Per image what a text detector took; None when nothing was detected."""


def prepare(config: AuditConfig, backbone: Backbone, boxes: BoxesBeside, shard: Shard) -> Prepared:
    """Decodes and resizes a shard's pictures and waits for their boxes."""
    pictures = (open_image(config.images, probe.image, occlude=probe.occlude) for probe in shard.pictures)
    pixels = [backbone.preprocess(picture) for picture in pictures]
    if not boxes.detects:
        return Prepared(shard, pixels, None)
    (boxed,), shown = with_boxes([shard], boxes)
    return Prepared(boxed, pixels, shown.ms)


def region_geometries(probes: Sequence[Probe], encoded: Sequence[Encoded]) -> list[RegionGeometry | None]:
    """Cell-region arithmetic once per picture and region set, for all arms; None for a probe without regions."""
    known: dict[tuple[str, tuple[Box, ...]], RegionGeometry] = {}
    geometries: list[RegionGeometry | None] = []
    for probe, picture in zip(probes, encoded, strict=True):
        key = (image_key(probe), probe.regions)
        if probe.regions and key not in known:
            known[key] = RegionGeometry(picture.cells, probe.regions)
        geometries.append(known.get(key))
    return geometries


def image_options(config: AuditConfig) -> ImageOptions:
    limits = {name: getattr(config, name) for name in ("min_pixels", "max_pixels", "min_tiles", "max_tiles")}
    return ImageOptions.artifact(**limits) if config.profile == "artifact" else ImageOptions(**limits)


def reporting_contract(config: AuditConfig, backbone: Backbone, digest: str) -> dict[str, Any]:
    """What every row carries about how it was made."""
    import transformers

    device = backbone.language.device
    return {
        "model": config.model.rstrip("/").split("/")[-1] if "/" in config.model else config.model,
        "model_type": str(backbone.model.config.model_type),
        "weight_digest": digest,
        "positions": backbone.paper_positions if config.positions == "auto" else config.positions,
        "box_source": config.box_source,
        "profile": config.profile,
        "dtype": str(backbone.language.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu ({platform.machine()})",
        "attention": config.attention,
        "versions": {
            "sightline": sightline.__version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def probe_bytes(probes: ProbeSet, shards: Sequence[Shard]) -> bytes:
    """The audited probes as a probe file of their own, for the run folder."""
    chosen = replace(probes, probes=tuple(probe for shard in shards for probe in shard.probes))
    return probes_text(chosen).encode()
