"""The masks of a finished arm as a file that ``masks:file=...`` replays, here or in another program."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from sightline.arms.arm import Arm, parse_arm
from sightline.auditing.config import AuditConfig
from sightline.auditing.loop import encode_all
from sightline.auditing.shards import Shard, image_key, make_shards
from sightline.auditing.worker import Worker
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import Selection
from sightline.core.selection_rules import index_mask, lineage_mask
from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.probes import read_probes
from sightline.probes.images import open_image
from sightline.rows.run import Run
from sightline.store.manifest import SEVERAL_MACHINES
from sightline.store.shard_files import pack_mask, unpack_mask

RECORDED = (
    "profile", "dtype", "positions", "box_source", "scorer", "image_options", "attention", "batch_images",
    "shard_images", "shard_probes", "execution", "limit",
)  # fmt: skip
"""Options that a manifest has under their own names."""


def exported_masks(run: Run, arm: str) -> Iterator[dict[str, Any]]:
    """One line per row of an arm that deletes: its kept tokens, and for how many tokens in which layout they are."""
    layouts = _layouts(run)
    for row in rows_of(run, arm):
        if row["lineage_mask"] is not None:
            raise SightlineError(
                f"{arm} merges tokens, and a run keeps no weights: name --model and --images, so that its merges are "
                "computed again and checked against the run"
            )
        kept = np.flatnonzero(unpack_mask(row["kept_mask"], row["n_tokens"])).tolist()
        yield {**_head(row, layouts), "kept_indices": kept}


def exported_merges(run: Run, arm: str, config: AuditConfig) -> Iterator[dict[str, Any]]:
    """One line per row of an arm that merges: groups of tokens with their weights, computed again.

    Weights and model are those of the run, or it is refused; so is a selection that is not the one in its rows.
    """
    rows = {row["probe_id"]: row for row in rows_of(run, arm)}
    layouts = _layouts(run)
    chosen = parse_arm(arm)
    if chosen.policy is not None:
        raise SightlineError(f"{arm} merges tokens at a budget of each probe's own; export the arms of its levels")
    worker = Worker(config)
    # Whatever a device or a version changes shows in the selection, which is compared.
    run.folders[0].refuse_other(worker.settings(run.manifest), without=SEVERAL_MACHINES)
    probes = [probe for probe in read_probes(run.probe_file).probes if probe.id in rows]
    for shard in make_shards(probes, config.shard_images, probes_per_shard=config.shard_probes):
        for probe, selection in zip(shard.probes, _selections(worker, shard, chosen), strict=True):
            row = rows[probe.id]
            _refuse_other(selection, row, arm)
            line = {"merge_at": selection.merge_at, "groups": _groups(selection)}
            yield {**_head(row, layouts), **line, **({} if selection.native_order else {"native_order": False})}


def rows_of(run: Run, arm: str) -> list[dict[str, Any]]:
    """The rows of one arm, which must be all that there are of each probe and choose before the language model."""
    if arm not in run.arms:
        raise SightlineError(f"{run.path} has no arm '{arm}'; it has {', '.join(run.arms)}")
    wanted = ["arm", "probe_id", "image_key", "n_tokens", "k_layers", "kept_mask", "lineage_mask"]
    rows = [row for row in run.rows.select(wanted).to_pylist() if row["arm"] == arm]
    if any(row["k_layers"] is not None for row in rows):
        raise SightlineError(
            f"{arm} prunes between language layers: a mask replayed before the first of them would be another method"
        )
    if len({row["probe_id"] for row in rows}) < len(rows):
        raise SightlineError(f"{run.path} asks a probe about several views: its masks have no line of their own each")
    return rows


def _layouts(run: Run) -> dict[str, Any]:
    """Layout by image key."""
    table = run.images.select(["image_key", "layout"])
    keys, layouts = (column.to_pylist() for column in table.columns)
    return {key: json.loads(layout) for key, layout in zip(keys, layouts, strict=True)}


def _head(row: dict[str, Any], layouts: dict[str, Any]) -> dict[str, Any]:
    return {"sample_id": row["probe_id"], "n_tokens": row["n_tokens"], "layout": layouts[row["image_key"]]}


def _selections(worker: Worker, shard: Shard, arm: Arm) -> list[Selection]:
    """The arm's selections for the probes of a shard, on the path that an audit takes."""
    answerer, shard = worker.answerer, shard.under(arm.intervention)
    backbone = answerer.backbone
    root, batch = worker.config.images, worker.config.batch_images
    pixels = [backbone.preprocess(open_image(root, probe.image, occlude=probe.occlude)) for probe in shard.images]
    encoded: Sequence[Encoded] = encode_all(backbone, pixels, backbone.form(arm.selector).needs, batch)
    images = {image_key(probe): image for probe, image in zip(shard.images, encoded, strict=True)}
    probes: Sequence[Probe] = shard.probes
    prompts = [answerer.scorer.prompt(backbone, probe) for probe in probes]
    selected = answerer.step.many([images[image_key(probe)] for probe in probes], prompts, probes, arm)
    return [one.selection for one in selected]


def _refuse_other(selection: Selection, row: dict[str, Any], arm: str) -> None:
    """Refuses a selection whose anchors or sources are not those that the row recorded."""
    n = row["n_tokens"]
    anchors = pack_mask(index_mask(selection.anchors.cpu(), n))
    sources = pack_mask(lineage_mask(selection, n).numpy())
    recorded = row["kept_mask"] if row["lineage_mask"] is None else row["lineage_mask"]
    if (anchors, sources) != (row["kept_mask"], recorded):
        raise SightlineError(
            f"{arm} chooses other tokens now than the run recorded for probe '{row['probe_id']}'; "
            "use the device and the versions that the run was made with"
        )


def _groups(selection: Selection) -> list[list[Any]]:
    """``[anchor, [sources], [weights]]`` of every output, the weights to the last digit."""
    mix = selection.mix
    if mix is None:
        return [[anchor, [anchor], [1.0]] for anchor in selection.anchors.tolist()]
    groups = []
    for anchor, row in zip(selection.anchors.tolist(), mix.double().cpu(), strict=True):
        sources = row.nonzero().flatten()
        groups.append([anchor, sources.tolist(), row[sources].tolist()])
    return groups


def config_of(run: Run, model: str, images: Place, **changes: Any) -> AuditConfig:
    """The configuration under which a run's arms are computed again."""
    said = {name: run.manifest[name] for name in RECORDED if name in run.manifest}
    return AuditConfig(
        model=model, probes=run.probe_file, images=images, out=run.path, arms=run.arms, **said, **changes
    )
