"""A loaded model: what it says of itself in a manifest, what it refuses, and images made ready for it."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from sightline.answering.answerer import Answerer
from sightline.answering.scorers import SCORERS
from sightline.answering.scorers.spoken import SpokenScorer
from sightline.arms.arm import Arm, parse_arm
from sightline.auditing.config import AuditConfig
from sightline.auditing.loop import ImageFile, Prepared, Seen, details, preview
from sightline.auditing.shards import Shard, image_key, with_boxes
from sightline.backbones import ImageOptions, load_backbone, options_for, weight_digest
from sightline.backbones.base import checkpoint_digests, description_digests, subfolder_digests
from sightline.backbones.clip import ClipSpace
from sightline.backbones.execution import Execution, keep_compiled, use_execution, use_vision_execution
from sightline.backbones.loading import (
    backbone_class,
    checkpoint_folder,
    choose_device,
    choose_dtype,
    model_type,
    served_by,
    snapshot_revision,
)
from sightline.boxes.sources import BoxesBeside
from sightline.device import moved
from sightline.device.work import setting_up
from sightline.errors import SightlineError, located
from sightline.places.listing import StoreError
from sightline.probes.images import image_digest, image_files, image_place, open_image_file, pixel_digest
from sightline.progress import waiting_for
from sightline.store.folder import RunFolder
from sightline.version import __version__


class Worker:
    """Loads what a configuration names."""

    row_facts: Mapping[str, Any]
    """What every row repeats of how it was made; known once ``settings`` are."""
    _sizes: Mapping[str, tuple[int, int]] = {}
    _rehearsed = False
    threads: int | None = None
    """On a CPU: of how many a sum is made of decides its last bits, so all that compute a run have the same."""

    def __init__(self, config: AuditConfig) -> None:
        self.config = config
        self.noted: set[str] = set()
        """Arms that the user has been told something about, once."""
        source = checkpoint_folder(config.model)
        with waiting_for(f"loading {source.name}"):
            self._load(source)

    def _load(self, source: Path) -> None:
        config = self.config
        backbone = load_backbone(
            str(source),
            dtype=config.dtype,
            device=config.device,
            attention=config.attention,
            options=options_for(source, config.profile, config.image_options),
        )
        self._execution = Execution("eager")  # as a model is loaded
        if config.execution != "eager":
            keep_compiled(backbone.language.device)
            self._execution = use_execution(backbone.language, config.execution, dynamic=True)
            use_vision_execution(backbone, self._execution, dynamic=True)
        clip = ClipSpace(config.clip, backbone.language.device) if config.clip else None
        kind, language = str(backbone.model.config.model_type), backbone.language
        self.facts: Mapping[str, Any] = {
            **described(config, kind, backbone.paper_positions, language.dtype),
            "weight_digest": weight_digest(source),
            **computed_by(language.device),
        }
        self._files = files_of(source)
        if revision := snapshot_revision(source):
            self._files["model_revision"] = revision
        if clip is not None:
            self._files["clip_files"] = checkpoint_digests(clip.folder)
        scorer = SCORERS.get(config.scorer)()
        if isinstance(scorer, SpokenScorer):
            scorer.max_new_tokens = config.longest_answer
        self.answerer = Answerer(
            backbone, scorer, clip=clip, positions=self.facts["positions"], keeps_scores=config.keep_scores
        )

    def settings(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        """What the run folder, whose manifest may be ``recorded`` already, has to agree with."""
        backbone = self.answerer.backbone
        settings = manifest_settings(self.config, self.facts, backbone.options)
        if self.device.type == "cpu":
            self.threads = self.config.threads or recorded.get("threads") or torch.get_num_threads()
            settings["threads"] = self.threads
        settings = {**settings, **self._files, "served_by": served_by(backbone)}
        self.row_facts = {**self.facts, "conditions": conditions(settings)}
        return settings

    @property
    def device(self) -> torch.device:
        return self.answerer.backbone.language.device

    def refuse_unserved(self, arms: Sequence[Arm], sizes: Mapping[str, tuple[int, int]]) -> None:
        """A method that this architecture cannot serve is refused by name, before any work.

        So is a budget that an image, of this (width, height), cannot be made small enough for.
        """
        self._sizes = sizes
        self.answerer.step.refuse_unserved(arms)
        for arm in arms:
            if (budget := arm.image_budget) is not None:
                for size, name in {size: name for name, size in sizes.items()}.items():
                    with located(f"arm '{arm.text}', image {name}"):
                        self.answerer.backbone.fit(size, budget)

    def rehearse(self, shard: Shard) -> None:
        """Compiles what an execution compiles, on a blank page of the shard's first size, while the host prepares the
        shard: once, and the answers are nobody's. What fails here is said where it fails again, on an image."""
        if self.config.execution == "eager" or self._rehearsed or not shard.images:
            return
        self._rehearsed = True
        backbone, first = self.answerer.backbone, shard.images[0]
        with setting_up(self.device, self.setup_ms), suppress(Exception):
            page = backbone.preprocess(Image.new("RGB", self._sizes[first.image], "white"))
            for count in {1, min(2, self.config.batch_images)}:  # one sequence and several are code of their own
                seen = backbone.encode([page] * count)
            self.answerer.answer(parse_arm("full"), [first] * 2, seen[:1] * 2, self.config.batch_tokens)

    def prepare(self, folder: RunFolder, boxes: BoxesBeside, shard: Shard) -> Prepared:
        """Decodes every image once, for the tower and for the report, and waits for their boxes.

        Images of a URL are fetched several at a time, ahead of the one that is decoded.

        An image that cannot be read, or that the model's own code fails on, is left out with its probes, and said so.
        One whose file is not what it was when the run recorded it is refused: its rows would mix the two.
        """
        known, recorded = folder.has_images(shard.index, shard.version), folder.image_digests(shard.index)
        pixels, seen, bad, backbone = [], [], {}, self.answerer.backbone
        own: dict[str, ImageFile] = {}
        files = image_files(self.config.images, [probe.image for probe in shard.images])
        for probe, (_, opened) in zip(shard.images, files, strict=True):
            moved()
            called = image_place(self.config.images, probe.image)
            try:
                with opened() as file:
                    digest = image_digest(file)
                    image = open_image_file(file, called, occlude=probe.occlude)
            except StoreError:
                raise
            except SightlineError as error:
                if probe.image in recorded:
                    raise SightlineError(f"{error}; {folder.path} holds rows of it, restore the file") from None
                bad[probe.image] = str(error)
                continue
            if recorded.get(probe.image, digest) != digest:
                raise SightlineError(
                    f"image {called} has other content than the one that "
                    f"{folder.path} holds rows of; restore the file or choose another --out"
                )
            # What was shown smaller is left out as a whole or not at all: the same image has rows in its usual size.
            if probe.image not in recorded and shard.image_budget is None:
                own[probe.image] = ImageFile(str(called), digest)
            try:
                pixels.append(backbone.preprocess(image, budget=shard.image_budget))
            except Exception as error:
                if probe.image not in own:
                    raise
                bad[probe.image] = own[probe.image].unread(error)
                continue
            if not known:
                options = pixels[-1].options
                smaller = None if options is None else backbone.under(options).shown_size(image.size)
                key = image_key(probe)
                regions = (box for asked in shard.probes if image_key(asked) == key for box in asked.regions)
                # Before the preview shrinks the image. What was shown smaller is shown no sharper than that.
                sharp = details(image, regions) if smaller is None else []
                seen.append(
                    Seen(digest, None if probe.occlude else pixel_digest(image), preview(image, smaller), sharp)
                )
        records, readable = None if known else seen, shard.without(bad)
        if not boxes.detects:
            return Prepared(readable, pixels, records, bad=bad, files=own)
        (boxed,), shown = with_boxes([readable], boxes)
        return Prepared(boxed, pixels, records, shown.ms, bad, own)

    @property
    def batch_images(self) -> int:
        return self.config.batch_images

    @property
    def setup_ms(self) -> list[float]:
        """What it took so far to compile or capture, for whoever adds to it."""
        return self._execution.setup_ms

    def record_setup(self, folder: RunFolder) -> None:
        if setup := self.setup_ms:
            folder.notes.add_setup(sum(setup))
            done = self._execution
            words = filter(None, [f"set-up took {sum(setup) / 1e3:.1f} s", done.compiled(), done.note])
            print(f"{self.config.execution}: {'; '.join(words)}", file=sys.stderr, flush=True)
            setup.clear()


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """So many of PyTorch's threads for one operation, and as many as before afterwards."""
    before = torch.get_num_threads()
    if count is not None and count != before:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)


# What a run is determined by, for its manifest and for every row.


def computed_by(device: torch.device) -> dict[str, Any]:
    """What decides the last bits of rows beside the model and the options: device and versions."""
    import transformers

    on_gpu = device.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if on_gpu else f"cpu ({platform.machine()})",
        # Of a CPU, which of its instructions PyTorch adds up sums with.
        **({} if on_gpu else {"instructions": torch.backends.cpu.get_cpu_capability()}),
        "versions": {
            "sightline": __version__,
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "python": platform.python_version(),
        },
    }


def conditions(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What of a run's settings decides the last bits of a row and has no column of its own."""
    found = {name: settings.get(name) for name in ("batch_tokens", "batch_images", "threads", "instructions")}
    files = {**settings["checkpoint_files"], **settings["checkpoint_subfolders"]}
    found["checkpoint"] = sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:8]
    return {name: value for name, value in found.items() if value is not None}


SETTINGS = {
    "limit", "shard_images", "shard_probes", "execution", "batch_images", "batch_tokens", "longest_answer",
    "keep_scores", "seed", "skip_bad_images",
}  # fmt: skip
"""Options that a manifest has under their own names and that rows do not repeat."""


def described(config: AuditConfig, kind: str, paper_positions: str, dtype: torch.dtype) -> dict[str, Any]:
    """What every row carries about how it was made, as far as no weights are needed to know it."""
    return {
        "model": model_name(config),
        "model_type": kind,
        "scorer": config.scorer,
        "positions": paper_positions if config.positions == "auto" else config.positions,
        "box_source": config.box_source,
        "profile": config.profile,
        "dtype": str(dtype).removeprefix("torch."),
        "attention": config.attention,
    }


def model_name(config: AuditConfig) -> str:
    """Folder name or hub id, never a local path; a hub's revision is recorded beside it."""
    name = config.model if Path(config.model).is_dir() else config.model.partition("@")[0]
    return name.rstrip("/").split("/")[-1] if "/" in name else name


def settings_before_loading(config: AuditConfig, source: Path) -> dict[str, Any]:
    """What a run folder has to agree with, as far as it can be told before any weights are read."""
    kind = model_type(source)
    facts = described(config, kind, backbone_class(kind).paper_positions, choose_dtype(config.dtype, source))
    facts |= files_of(source)
    if config.launcher != "ray":  # whose workers run on machines of which this process knows nothing
        facts |= computed_by(choose_device(config.device))
    if config.threads is not None and choose_device(config.device).type == "cpu":
        facts["threads"] = config.threads
    return manifest_settings(config, facts, options_for(source, config.profile, config.image_options))


def files_of(source: Path) -> dict[str, Any]:
    """Digests of what a checkpoint holds beside its weights."""
    return {"checkpoint_files": description_digests(source), "checkpoint_subfolders": subfolder_digests(source)}


def manifest_settings(config: AuditConfig, facts: Mapping[str, Any], options: ImageOptions) -> dict[str, Any]:
    """The facts with the settings that rows do not repeat."""
    own = config.model_dump(include=SETTINGS)
    return {**facts, **own, "image_options": options.as_dict(), "images": str(config.images)}
