"""The columns of a row and of an image record. Every field has a sentence; nothing else defines the format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 2


class Column(NamedTuple):
    """One column of a table on disk."""

    name: str
    type: str
    """As Arrow calls it: string, bool, int32, float32, float64, binary, or list<...> of one of them."""
    doc: str


ROW_COLUMNS = (
    Column("arm", "string", "The arm of the run in canonical form: selector, budget, arguments, intervention."),
    Column("plain_arm", "string", "The same arm without its intervention: what an intervention is compared with."),
    Column("selector", "string", "Registered name of the selector."),
    Column("role", "string", "What the selector claims to be: reference, method, control, oracle or replay."),
    Column(
        "regime",
        "string",
        "What the arm may be ranked with: full, box-free method, box-free control, detector-assisted, oracle, replay.",
    ),
    Column("arguments", "string", "Every hyper-parameter of the selector as JSON, defaults included."),
    Column(
        "budget",
        "string",
        "Requested budget: a kept fraction such as 0.3, or a count such as 192t, either with /tile behind it if every "
        "tile has its own; of a replayed mask what it kept; of a policy the levels that it chooses from: 0.3/0.7.",
    ),
    Column(
        "keep_requested",
        "float64",
        "Requested kept fraction, of the image or of each tile; null for an absolute budget or a replayed mask; of a "
        "policy that of the final level.",
    ),
    Column("keep", "float64", "Realised kept fraction K / N, measured on the tensor that was run."),
    Column("policy", "string", "Registered name of what gave this sample its budget; none where all have the same."),
    Column("levels", "string", "Budgets of the passes that were run, the answer's last: 0.3/0.7; else the budget."),
    Column(
        "keep_spent",
        "float64",
        "Kept fractions of all passes together: what a policy really ran; equal to keep where there was one pass.",
    ),
    Column("decided_on", "string", "What the policy decided on, as JSON; null without one."),
    Column("n_tokens", "int32", "N: visual tokens of the full prefix."),
    Column("k_tokens", "int32", "K: visual tokens of the pruned prefix (for layer-wise methods: after the last cut)."),
    Column("k_layers", "list<int32>", "Visual tokens that each language layer read; null when all layers read K."),
    Column(
        "keep_layer_mean",
        "float64",
        "Mean over language layers of the fraction of visual tokens that the layer read.",
    ),
    Column("positions", "string", "Position policy: preserve (original ids) or compact (renumbered)."),
    Column("box_source", "string", "Where the boxes that the selector read came from; none if it reads no boxes."),
    Column(
        "query_found",
        "bool",
        "Whether the text that the selector compares tokens with stands in the question; false: it had the whole "
        "prompt instead; null where it looks for none.",
    ),
    Column("intervention", "string", "What was done to the mask or the image on purpose; none for a plain arm."),
    Column("probe_id", "string", "Probe identifier, unique within the probe set."),
    Column("image_id", "string", "Image identifier: the unit that bootstraps resample."),
    Column("image_key", "string", "Key into the images table (file, view, and size if it was shown smaller)."),
    Column("view", "string", "Image variant: orig, or the name of an occlusion or control."),
    Column("label", "string", "True answer, yes or no."),
    Column("kind", "string", "How the probe was made."),
    Column("predicted", "string", "What the arm answered, in the words of the label."),
    Column("correct", "bool", "Whether predicted equals label."),
    Column("n_regions", "int32", "Annotated regions of the probe; geometry is null when there are none."),
    Column("visible", "float64", "Share of the regions' union that the vision tower sees at all: ecr of all N tokens."),
    Column("ecr", "float64", "Covered fraction of the regions' union by the cells of the lineage of all kept tokens."),
    Column("anchor_ecr", "float64", "The same counting only each kept token's anchor."),
    Column("center_recall", "float64", "Fraction of regions whose centre lies in a kept cell."),
    Column("patch_recall", "float64", "Kept fraction of the cells that overlap a region."),
    Column("lpp", "float64", "Local precision: evidence area within the kept cells that touch evidence."),
    Column("geo_f1", "float64", "Harmonic mean of ecr and lpp."),
    Column("anchor_lpp", "float64", "lpp counting only each kept token's anchor."),
    Column("anchor_geo_f1", "float64", "Harmonic mean of anchor_ecr and anchor_lpp."),
    Column("worst_region", "float64", "Smallest single-region coverage."),
    Column("all_half", "bool", "Whether every region is at least half covered."),
    Column(
        "legibility",
        "float64",
        "Pixels of character height that reach the model for the least legible region; null where sampling is unknown.",
    ),
    Column("kept_mask", "binary", "A bit per cell of the image's record, most significant first: the anchors' cells."),
    Column(
        "lineage_mask",
        "binary",
        "As kept_mask: every source of a merged output; null for deletion (equal to kept_mask).",
    ),
    Column(
        "scores",
        "binary",
        "What the selector ranked tokens by, a little-endian float32 per cell, or float64 where that holds more; null "
        "unless --keep-scores was given and the selector is a scored one.",
    ),
    Column("scores_rule", "string", "How it chose by them: top (the K highest, ties to the lower index) or other."),
    Column("sequence_full", "int32", "Length of the unpruned prompt."),
    Column("sequence_pruned", "int32", "Length of the pruned prompt that was run."),
    Column("preprocess_ms", "float32", "Decoding and resizing the image (once per image, shared by its rows)."),
    Column("vision_ms", "float32", "Vision tower and projector (once per image, shared by its rows)."),
    Column(
        "boxes_ms",
        "float32",
        "Text detector that found the boxes (once per image); null unless the selector reads boxes that were detected.",
    ),
    Column("signal_ms", "float32", "Extra signals this selector asked for."),
    Column("select_ms", "float32", "The selector itself, its scores included."),
    Column("materialise_ms", "float32", "Building the shortened prefix."),
    Column("language_ms", "float32", "Language model forward: batch time divided by the rows in the batch."),
    Column("model", "string", "Model name: folder name or hub id, never a local path."),
    Column("model_type", "string", "Architecture of the checkpoint."),
    Column("weight_digest", "string", "SHA-256 over the safetensors files."),
    Column("device", "string", "Device that ran the row."),
    Column("dtype", "string", "Dtype of the weights."),
    Column("attention", "string", "Attention kernel."),
    Column("profile", "string", "Fidelity profile: paper (default) or artifact."),
    Column("versions", "string", "Library versions as JSON."),
    Column(
        "conditions",
        "string",
        "What else decides the last bits, as JSON: batch_tokens, batch_images, on a CPU threads and instructions, the "
        "digest of the checkpoint's files beside its weights (8 digits); halved where memory ran out for the batch.",
    ),
)
"""What every row has, whatever the scorer; a scorer names its own columns, which stand behind ``correct``."""

IMAGE_COLUMNS = (
    Column("image_key", "string", "File, view, and size if it was shown smaller; rows point here."),
    Column("image", "string", "File name relative to the image root."),
    Column("image_id", "string", "Image identifier."),
    Column("digest", "string", "SHA-256 of the file."),
    Column("pixels", "string", "SHA-256 of size and RGB values: images that share it count as one; null if painted."),
    Column("width", "int32", "Pixels."),
    Column("height", "int32", "Pixels."),
    Column("layout", "string", "Row-major (rows, columns) blocks of the visual tokens, as JSON."),
    Column(
        "cells",
        "binary",
        "N x 4 little-endian float32: x1, y1, x2, y2 of each token's cell as fractions of the image.",
    ),
    Column("preview", "binary", "Small JPEG of the image that was encoded, for reports."),
    Column(
        "details",
        "list<binary>",
        "Where the preview blurs the regions of the image's probes: a sharp JPEG of each with its surroundings.",
    ),
    Column("detail_boxes", "list<list<float64>>", "Which part of the image each detail shows, in fractions of it."),
)


def schema(columns: tuple[Column, ...]) -> pa.Schema:
    import pyarrow as pa

    def kind(name: str) -> pa.DataType:
        inner = name.removeprefix("list<").removesuffix(">")
        return pa.type_for_alias(inner) if inner == name else pa.list_(kind(inner))

    return pa.schema([pa.field(column.name, kind(column.type), metadata={"doc": column.doc}) for column in columns])


def row_schema(own: tuple[Column, ...] = ()) -> pa.Schema:
    """Of the rows of a scorer with these columns of its own."""
    behind = next(i for i, column in enumerate(ROW_COLUMNS) if column.name == "correct") + 1
    return schema((*ROW_COLUMNS[:behind], *own, *ROW_COLUMNS[behind:]))


def image_schema() -> pa.Schema:
    return schema(IMAGE_COLUMNS)


TIME_COLUMNS = tuple(column.name for column in ROW_COLUMNS if column.name.endswith("_ms"))
"""The only columns that may differ between two runs of the same command."""


# Where a sequence of probes, grouped by image, is cut into shards. Writers and checks of a run share this one rule.


class Stretch(NamedTuple):
    """Consecutive probes of one image within a shard."""

    image: int
    """Which image, counted from 0."""
    start: int
    stop: int
    """Which of the image's probes."""


def cut_shards(sizes: Iterable[int], images: int, probes: int | None) -> Iterator[list[Stretch]]:
    """Shards of at most so many images and probes, from the number of probes of every image in order.

    An image whose probes fit into one shard is not divided; one with more fills as many shards as it takes. Without
    ``probes`` no image is divided at all, which is how the first release cut.
    """
    shard: list[Stretch] = []
    held = 0
    for image, size in enumerate(sizes):
        start = 0
        while start < size:
            left = size - start
            full = len(shard) == images or (probes is not None and held + left > probes)
            if shard and full:
                yield shard
                shard, held = [], 0
            taken = left if probes is None else min(left, probes)
            shard.append(Stretch(image, start, start + taken))
            start, held = start + taken, held + taken
    if shard:
        yield shard
