"""Synthetic runs for the viewer: image files beside them, and scores whose top K are the masks."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from sightline.probes.images import image_digest
from sightline.store.folder import RunFolder
from sightline.store.shard_files import pack_mask
from tests.unit.report.fake_run import make_run

SHARP = (1280, 960)
"""Of the image files; previews are half as wide."""


def with_scores(row: dict[str, Any]) -> None:
    """Scores of a plain target arm, and the mask that they make."""
    if row["selector"] != "target":
        return
    n, k = row["n_tokens"], row["k_tokens"]
    seed = int.from_bytes(row["probe_id"].encode(), "big") % 2**32
    scores = np.random.default_rng(seed).permutation(n).astype("<f4")
    kept = np.zeros(n, dtype=bool)
    kept[np.argsort(-scores, kind="stable")[:k]] = True
    row |= {"scores": scores.tobytes(), "scores_rule": "top", "kept_mask": pack_mask(kept)}


def viewed_folder(path: Path, image_files: Path | None = None, **settings: Any) -> Path:
    """A run folder; with ``image_files`` a folder of files that are sharper than its previews."""
    make_run(path, edit_row=with_scores, **settings)
    if image_files is not None:
        image_files.mkdir(exist_ok=True)
        file = path / "images" / "00000.parquet"
        records = pq.read_table(file, partitioning=None).to_pylist()
        for record in records:
            with Image.open(io.BytesIO(record["preview"])) as preview:
                preview.resize(SHARP).save(image_files / record["image"], quality=60)
            record |= {"digest": image_digest(image_files / record["image"]), "width": SHARP[0], "height": SHARP[1]}
        file.unlink()  # records that are there stay
        RunFolder(path).write_images(0, "orig", records)
    return path
