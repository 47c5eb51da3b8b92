"""Image files beside a run folder, sharper than the previews in it."""

import io
from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image

from sightline.probes.images import image_digest
from sightline.store.folder import RunFolder

SHARP = (1280, 960)
"""Previews are half as wide."""


def write_image_files(run: Path, folder: Path) -> Path:
    """Writes them, and their digests and sizes into the run, which looks audited from them; returns the run."""
    folder.mkdir(exist_ok=True)
    file = run / "images" / "00000.parquet"
    records = pq.read_table(file, partitioning=None).to_pylist()
    for record in records:
        with Image.open(io.BytesIO(record["preview"])) as preview:
            preview.resize(SHARP).save(folder / record["image"], quality=60)
        record |= {"digest": image_digest(folder / record["image"]), "width": SHARP[0], "height": SHARP[1]}
    file.unlink()  # records that are there stay
    RunFolder(run).write_images(0, "orig", records)
    return run
