"""A finished (or running) run as tables: ``load_run(path)``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from sightline.core.row import image_schema, row_schema
from sightline.errors import SightlineError
from sightline.places import Place, place, read_whole
from sightline.store.folder import PROBES, RunFolder, read_table
from sightline.store.lookup import Row, image_of, plain_arms, probe_of, row_of, rows_of
from sightline.store.migrations import migrated_images, migrated_rows, with_visible
from sightline.store.packing import pack_mask, unpack_cells, unpack_mask
from sightline.store.probe_picture import ArmPicture, draw_arms
from sightline.store.probe_texts import with_texts
from sightline.store.stored_geometry import with_anchor_precision

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Run", "load_run", "pack_mask", "unpack_cells", "unpack_mask"]

MASKS = ("kept_mask", "lineage_mask")
NAMED = 3
"""Images that a sentence names; it counts the others."""


@dataclass(frozen=True)
class Run:
    """A run folder read into memory. Rows come in the order of arms, then shards, then probes."""

    path: Place
    manifest: dict[str, Any]

    @property
    def arms(self) -> list[str]:
        return list(self.manifest["arms"])

    @cached_property
    def rows(self) -> pa.Table:
        """One row per probe and arm; the columns are documented in ``sightline.core.row`` and by the scorer."""
        folder = RunFolder(self.path)
        files = (migrated_rows(read_table(file), arm) for arm in self.arms for file in folder.files_of_rows(arm))
        rows = with_visible(_concatenate(files, row_schema()))
        return with_anchor_precision(rows, lambda: self.images, lambda: self.probes)

    @cached_property
    def images(self) -> pa.Table:
        """One record per encoded image: cells, layout, preview."""
        files = RunFolder(self.path).files_of_images()
        return _concatenate((migrated_images(read_table(file)) for file in files), image_schema())

    def frame(self, *, texts: bool = True) -> pd.DataFrame:
        """The rows and, as last columns, what was asked: ``question``, ``target_text``, ``source_text``.

        Of open questions also the accepted ``answers`` and the ``roles`` of regions, as tuples. ``texts=False`` leaves
        all of them out. Masks are packed bits, as they are stored; ``masks`` unpacks them.
        """
        frame: pd.DataFrame = self.rows.to_pandas()
        return with_texts(frame, self.probes) if texts else frame

    def row(self, probe: str, arm: str, view: str | None = None) -> dict[str, Any]:
        """One probe under one arm; ``view`` where the probe set asks about several, without it the original."""
        return row_of(self, probe, arm, view)

    def masks(self, arm: str, *, lineage: bool = False, view: str | None = None) -> dict[str, NDArray[np.bool_]]:
        """(N,) bool by probe id, a place per cell of the image that the arm looked at: the tokens it kept.

        ``lineage`` marks instead every token that flowed into a kept one; where nothing is merged both are the same.
        """
        counts = {key: len(unpack_cells(packed)) for key, packed in self._packed_cells.items()}
        found = {}
        for row in rows_of(self, arm, view=view).select(["probe_id", "image_key", *MASKS]).to_pylist():
            packed = (lineage and row["lineage_mask"]) or row["kept_mask"]
            found[row["probe_id"]] = unpack_mask(packed, counts[row["image_key"]])
        return found

    def cells(self, of: str | Row, arm: str | None = None) -> NDArray[np.float32]:
        """(N, 4) x1, y1, x2, y2 of each token's cell in fractions of the image; masks have a place for each of them.

        ``of`` is a row, or a probe's id with the arm that looked at it (the run's first if none is named): an arm that
        is shown a smaller image has fewer cells.
        """
        row = self.row(of, arm or self.arms[0]) if isinstance(of, str) else of
        return unpack_cells(self._packed_cells[row["image_key"]])

    def picture(
        self, probe: str, *arms: str, images: Place | str | None = None, view: str | None = None
    ) -> Image.Image:
        """What arms kept of a probe's image: kept cells lit, others dimmed, the regions outlined; several side by side.

        With ``images``, the folder that image names are relative to, as sharp as the file, otherwise from the small
        preview in the run folder; ``picture.info["sources"]`` says for each arm which it was, ``file`` or ``preview``.
        Where no arm is named, all without an intervention.
        """
        rows = [self.row(probe, arm, view) for arm in arms or plain_arms(self, probe)]
        pictures = [ArmPicture(row, image_of(self, row), probe_of(self, row)) for row in rows]
        return draw_arms(pictures, None if images is None else place(images))

    @cached_property
    def probes(self) -> list[dict[str, Any]]:
        """The audited probes as written into the run folder (without the header line)."""
        # Not splitlines(): a question may hold one of the other characters that Unicode ends lines with.
        lines = read_whole(self.path / PROBES).decode().split("\n")
        records = [json.loads(line) for line in lines if line.strip()]
        return [record for record in records if "sightline_probes" not in record]

    @cached_property
    def _packed_cells(self) -> dict[str, bytes]:
        """By image key."""
        keys, cells = (self.images.column(name).to_pylist() for name in ("image_key", "cells"))
        return dict(zip(keys, cells, strict=True))

    @property
    def missing(self) -> int:
        """How many (arm, shard) files are still to be computed; 0 for a finished run."""
        folder = RunFolder(self.path)
        return sum(not folder.has_rows(arm, s) for arm in self.arms for s in range(self.manifest["shards"]))

    @property
    def unfinished(self) -> str:
        """What is still to be computed, in a sentence; "" for a finished run."""
        reasons = []
        if missing := self.missing:
            reasons.append(f"{missing} of its shards are still to be computed")
        if self.bad_images and not self.manifest.get("skip_bad_images"):
            reasons.append(self._unreadable)
        return f"the run is not finished: {', and '.join(reasons)}" if reasons else ""

    @property
    def left_out(self) -> str:
        """What the run lacks on purpose, in a sentence: images that ``--skip-bad-images`` left out; "" for none."""
        return self._unreadable if self.bad_images and self.manifest.get("skip_bad_images") else ""

    @property
    def bad_images(self) -> dict[str, str]:
        """Images that could not be read, by name, with the reason; their probes have no rows."""
        return {name: str(entry["reason"]) for name, entry in self.manifest.get("bad_images", {}).items()}

    @property
    def _unreadable(self) -> str:
        names = list(self.bad_images)
        probes = sum(probe["image"] in self.bad_images for probe in self.probes)
        named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        images = f"{len(names)} image{'s' * (len(names) > 1)}"
        return f"{images} could not be read ({named}), so that {probes} probes have no rows"


def load_run(path: Place | str) -> Run:
    """Opens a run folder, by path or URL. ``run.rows`` is an Arrow table, ``run.frame()`` a pandas frame."""
    run = Run(place(path), RunFolder(path).manifest())
    if run.missing == len(run.arms) * run.manifest["shards"]:
        raise SightlineError(f"{path} has no finished shard yet; run `sightline run` with the same arguments to go on")
    return run


def _concatenate(tables: Iterable[pa.Table], empty: pa.Schema) -> pa.Table:
    """The tables under one another, columns in the order of the first: all files of a run have the same ones."""
    found = list(tables)
    if not found:
        return empty.empty_table()
    names = found[0].column_names
    return pa.concat_tables([table.select(names) for table in found])
