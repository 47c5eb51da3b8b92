"""The columns of a row and of an image record. Every field has a sentence; nothing else defines the format."""

from __future__ import annotations

import pyarrow as pa

SCHEMA_VERSION = 2

_ROW = [
    ("arm", pa.string(), "The arm of the run in canonical form: selector, budget, arguments, intervention."),
    ("plain_arm", pa.string(), "The same arm without its intervention: what an intervention is compared with."),
    ("selector", pa.string(), "Registered name of the selector."),
    ("arguments", pa.string(), "Every hyper-parameter of the selector as JSON, defaults included."),
    ("budget", pa.string(), "Requested budget: a kept fraction such as 0.3, or an absolute count such as 192t."),
    ("keep_requested", pa.float64(), "Requested kept fraction; null for an absolute budget or a replayed mask."),
    ("keep", pa.float64(), "Realised kept fraction K / N, measured on the tensor that was run."),
    ("n_tokens", pa.int32(), "N: visual tokens of the full prefix."),
    ("k_tokens", pa.int32(), "K: visual tokens of the pruned prefix (for layer-wise methods: after the last cut)."),
    ("k_layers", pa.list_(pa.int32()), "Visual tokens that each language layer read; null when all layers read K."),
    (
        "keep_layer_mean",
        pa.float64(),
        "Mean over language layers of the fraction of visual tokens that the layer read.",
    ),
    ("positions", pa.string(), "Position policy: preserve (original ids) or compact (renumbered)."),
    ("box_source", pa.string(), "Where the selector-visible boxes came from."),
    ("intervention", pa.string(), "What was done to the mask or the image on purpose; none for a plain arm."),
    ("probe_id", pa.string(), "Probe identifier, unique within the probe set."),
    ("image_id", pa.string(), "Image identifier: the unit that bootstraps resample."),
    ("image_key", pa.string(), "Key into the images table (file and view)."),
    ("view", pa.string(), "Image variant: orig, or the name of an occlusion or control."),
    ("label", pa.string(), "True answer, yes or no."),
    ("kind", pa.string(), "How the probe was made."),
    ("loss_yes", pa.float64(), "Mean negative log-likelihood per token of the yes continuation, in nats."),
    ("loss_no", pa.float64(), "Mean negative log-likelihood per token of the no continuation, in nats."),
    ("margin", pa.float64(), "loss_no - loss_yes; larger means more yes."),
    ("predicted", pa.string(), "yes iff margin >= 0 (a tie is yes)."),
    ("correct", pa.bool_(), "Whether predicted equals label."),
    ("greedy_yes", pa.bool_(), "Whether every token of the yes continuation is the arg-max at its position."),
    ("greedy_no", pa.bool_(), "The same for the no continuation."),
    ("n_regions", pa.int32(), "Annotated regions of the probe; geometry is null when there are none."),
    ("ecr", pa.float64(), "Covered fraction of the regions' union by the cells of the lineage of all kept tokens."),
    ("anchor_ecr", pa.float64(), "The same counting only each kept token's anchor."),
    ("center_recall", pa.float64(), "Fraction of regions whose centre lies in a kept cell."),
    ("patch_recall", pa.float64(), "Kept fraction of the cells that overlap a region."),
    ("lpp", pa.float64(), "Local precision: evidence area within the kept cells that touch evidence."),
    ("geo_f1", pa.float64(), "Harmonic mean of ecr and lpp."),
    ("worst_region", pa.float64(), "Smallest single-region coverage."),
    ("all_half", pa.bool_(), "Whether every region is at least half covered."),
    ("kept_mask", pa.binary(), "N bits, most significant first: the anchors' cells."),
    ("lineage_mask", pa.binary(), "N bits: every source of a merged output; null for deletion (equal to kept_mask)."),
    ("sequence_full", pa.int32(), "Length of the unpruned prompt."),
    ("sequence_pruned", pa.int32(), "Length of the pruned prompt that was run."),
    ("preprocess_ms", pa.float32(), "Decoding and resizing the image (once per image, shared by its rows)."),
    ("vision_ms", pa.float32(), "Vision tower and projector (once per image, shared by its rows)."),
    (
        "boxes_ms",
        pa.float32(),
        "Text detector that found the boxes (once per image); null unless the selector reads boxes that were detected.",
    ),
    ("signal_ms", pa.float32(), "Extra signals this selector asked for."),
    ("select_ms", pa.float32(), "The selector itself, its scores included."),
    ("materialise_ms", pa.float32(), "Building the shortened prefix."),
    ("language_ms", pa.float32(), "Language model forward: batch time divided by the rows in the batch."),
    ("model", pa.string(), "Model name: folder name or hub id, never a local path."),
    ("model_type", pa.string(), "Architecture of the checkpoint."),
    ("weight_digest", pa.string(), "SHA-256 over the safetensors files."),
    ("device", pa.string(), "Device that ran the row."),
    ("dtype", pa.string(), "Dtype of the weights."),
    ("attention", pa.string(), "Attention kernel."),
    ("profile", pa.string(), "Fidelity profile: paper (default) or artifact."),
    ("versions", pa.string(), "Library versions as JSON."),
]

_IMAGE = [
    ("image_key", pa.string(), "File and view; rows point here."),
    ("image", pa.string(), "File name relative to the image root."),
    ("image_id", pa.string(), "Image identifier."),
    ("digest", pa.string(), "SHA-256 of the file."),
    ("width", pa.int32(), "Pixels."),
    ("height", pa.int32(), "Pixels."),
    ("layout", pa.string(), "Row-major (rows, columns) blocks of the visual tokens, as JSON."),
    (
        "cells",
        pa.binary(),
        "N x 4 little-endian float32: x1, y1, x2, y2 of each token's cell as fractions of the image.",
    ),
    ("preview", pa.binary(), "Small JPEG of the picture that was encoded, for reports."),
]


def _schema(fields: list[tuple[str, pa.DataType, str]]) -> pa.Schema:
    return pa.schema([pa.field(name, kind, metadata={"doc": doc}) for name, kind, doc in fields])


ROW_SCHEMA = _schema(_ROW)
IMAGE_SCHEMA = _schema(_IMAGE)
ROW_DOCS = {name: doc for name, _, doc in _ROW}
TIME_COLUMNS = tuple(name for name, _, _ in _ROW if name.endswith("_ms"))
"""The only columns that may differ between two runs of the same command."""
