"""The images of a run: which of them are one picture, some of their records, and what all say of their cells.

Images are their pixels: ids of pictures that are equal are one image to every statistic. A picture is known by the
digest of its decoded pixels, and by that of its file. Only plain views count: what a control shows of another image is
not the image of its question.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.core.probe import ORIGINAL
from sightline.geometry.coverage import Boxes, region_areas
from sightline.rows.reader import compact_frame, read_probe_records
from sightline.statistics.arm_rows import as_names, looked_up
from sightline.store.parts import RunFiles
from sightline.store.shard_files import Owner, ShardPiece, unpack_cells

KNOWN_BY = ("pixels", "digest")
"""Columns of an image record, each of which makes two images one where it says the same of both."""


def same_images(runs: Sequence[RunFiles]) -> dict[str, str]:
    """Image ids that show the same picture as another of their run -> the first of those by name.

    Runs are joined by ids alone: one of the artifact's wrong images says ``orig`` of pictures that are somebody else's.
    """
    return _same([image_pictures(run) for run in runs])


def _same(pictures: Sequence[pa.Table]) -> dict[str, str]:
    ids = pd.Categorical(pa.concat_tables(pictures).column("image_id").to_pandas())  # in the order of names
    first = _firsts(ids.codes.astype(np.int64), pictures)
    joined = np.flatnonzero(first != np.arange(len(first)))
    return dict(zip(ids.categories[joined], ids.categories[first[joined]], strict=True))


def _firsts(images: NDArray[np.int64], pictures: Sequence[pa.Table]) -> NDArray[np.int64]:
    """(M,) the lowest number of an image that each of the M images is one with, through any number of others.

    ``images`` are those of all lines of the tables. Two are linked by a mark: a digest within a run.
    """
    marks, count = [], 0
    for name in KNOWN_BY:
        codes = [pd.factorize(table.column(name).to_pandas())[0] for table in pictures]
        for each in codes:
            each[each >= 0] += count
            count = max(count, int(each.max(initial=-1)) + 1)
        marks.append(np.concatenate(codes))
    image, mark = np.tile(images, len(marks)), np.concatenate(marks)
    image, mark = image[mark >= 0], mark[mark >= 0]
    first = np.arange(int(images.max(initial=-1)) + 1)
    while True:
        lowest = np.full(count, len(first))
        np.minimum.at(lowest, mark, first[image])
        found = first.copy()
        np.minimum.at(found, image, lowest[mark])
        if np.array_equal(found, first):
            return first
        first = found


def image_pictures(run: RunFiles) -> pa.Table:
    """``image_id`` with ``pixels`` and ``digest``, null where unknown: a line per id and encoded image of plain views.

    The rows of one arm per shard name them all, and of image records only the digests are read.
    """
    named, seen = [_empty("image_id", "image_key")], set[int]()
    for arm in run.arms:
        for piece in run.pieces(arm):
            shards = range(piece.first, piece.last + 1)
            if not seen.issuperset(shards):
                rows = _texts(run.owner(arm), piece, ("image_id", "image_key", "view"))
                plain = rows.filter(pc.equal(rows.column("view"), ORIGINAL)).select(["image_id", "image_key"])
                named.append(plain.group_by(["image_id", "image_key"]).aggregate([]))
                seen.update(shards if plain.num_rows else ())
    pairs = pa.concat_tables(named).group_by(["image_id", "image_key"]).aggregate([])
    told = [_texts(run.owner(), piece, ("image_key", *KNOWN_BY)) for piece in run.image_pieces()]
    records = pa.concat_tables([_empty("image_key", *KNOWN_BY), *told])
    place = pc.index_in(pairs.column("image_key"), value_set=records.column("image_key").combine_chunks())
    return records.select(KNOWN_BY).take(place).add_column(0, "image_id", pairs.column("image_id"))


def _empty(*names: str) -> pa.Table:
    return pa.schema([(name, pa.string()) for name in names]).empty_table()


def _texts(owner: Owner, piece: ShardPiece, names: Sequence[str]) -> pa.Table:
    """Some columns of text, null where the file has none of that name; checksums are left to whoever reads rows."""
    parquet, mark = owner.opened(piece.file, footer_alone=True)
    schema = parquet.schema_arrow
    there = [name for name in names if name in schema.names and pa.types.is_string(schema.field(name).type)]
    if not there:
        return _empty(*names)
    tables = list(owner.batches_of((parquet, mark), piece, there))
    table = pa.concat_tables([_empty(*there), *tables])
    for name in set(names).difference(there):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table.select(list(names))


def with_same_images(images: Any, same: Mapping[str, str]) -> Any:
    """A column of image ids, categorical or not, by their pictures."""
    if not same:
        return images
    if not isinstance(images, pd.Categorical):
        return images.map(same).where(images.isin(list(same)), images)
    called = pd.Index([same.get(name, name) for name in images.categories], dtype=images.categories.dtype)
    names = called.unique().sort_values()
    place = np.append(names.get_indexer(called), -1).astype(images.codes.dtype)  # the last is that of a missing name
    return pd.Categorical.from_codes(place[images.codes], categories=names)


def joined_words(same: Mapping[str, str]) -> str:
    """What was joined, in a sentence; "" where every image is a picture of its own."""
    if not same:
        return ""
    name = min(same)
    images = f"{len(same)} images have" if len(same) > 1 else "1 image has"
    return f"{images} the same pixels as another (first: {name} shows what {same[name]} shows): they count as one"


def shared_images(one: RunFiles, images: Collection[str], other: RunFiles, others: Collection[str]) -> dict[str, str]:
    """Among some ``images`` of a run those that are also among ``others`` of the other, by id or by picture: its id
    there."""
    left, right = (_chosen(run, chosen) for run, chosen in ((one, images), (other, others)))
    found = {name: name for name in set(images).intersection(others)}
    for column in KNOWN_BY:
        there = right.dropna(subset=column).drop_duplicates(column).set_index(column)["image_id"]
        met = left[left[column].isin(there.index)]
        for name, mark in zip(met["image_id"], met[column], strict=True):
            found.setdefault(name, there[mark])
    return found


def _chosen(run: RunFiles, images: Collection[str]) -> pd.DataFrame:
    """The pictures of some images, which are called by the first id that has the same."""
    pictures = image_pictures(run)
    frame: pd.DataFrame = pictures.to_pandas()
    frame["image_id"] = with_same_images(frame["image_id"], _same([pictures]))
    return frame[frame["image_id"].isin(list(images))]


# Some image records, and the cells of all: never all pictures at once.


def image_records(run: RunFiles, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The records of some images by their keys; a key that the run has no record of is left out."""
    wanted, found = pa.array(sorted(keys), pa.string()), dict[str, dict[str, Any]]()
    owner = run.owner()
    for piece in run.image_pieces():
        places = np.flatnonzero(pc.is_in(owner.read(piece, ["image_key"]).column(0), wanted))
        if len(places):
            for record in owner.read(piece).take(pa.array(places)).to_pylist():
                found.setdefault(record["image_key"], record)
    return found


def image_cells(run: RunFiles) -> tuple[dict[str, int], list[NDArray[np.float32]]]:
    """Image key -> which set of cells it has, and the sets: images of one size share theirs."""
    sets: dict[bytes, int] = {}
    of_image: dict[str, int] = {}
    owner = run.owner()
    for piece in run.image_pieces():
        for chunk in owner.read(piece, ["image_key", "cells"]).to_batches():
            packed = chunk.column("cells").dictionary_encode()
            numbers = np.array([sets.setdefault(one, len(sets)) for one in packed.dictionary.to_pylist()])
            keys = chunk.column("image_key").to_pylist()
            of_image.update(zip(keys, numbers[packed.indices.to_numpy()].tolist(), strict=True))
    return of_image, [unpack_cells(packed) for packed in sets]


# How large a probe's evidence is beside the cells of its image.

SCALES = ("evidence_area", "median_cell_area", "box_cell_ratio")
KEYS = ("probe_id", "view", "image_key", "n_tokens")
"""Columns that tell which image a probe was asked about, and whether it was shown whole."""
PROBES_AT_ONCE = 100_000


def probe_scales(run: RunFiles, rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """Per probe with regions: area of the union of its regions, median area of the image's cells, and their ratio.

    ``rows`` are those of the run that say which image a probe was asked about (``KEYS``), if somebody has them already.
    """
    of_image, sets = image_cells(run)
    keys = compact_frame(run, KEYS.__contains__) if rows is None else rows[list(KEYS)]
    keys = keys[keys["view"] == ORIGINAL].drop_duplicates(["probe_id", "image_key"])
    cells = looked_up(keys["image_key"], pd.Series(of_image, dtype="int64"))
    # An image that an arm was shown smaller has fewer cells than the full prefix has tokens.
    whole = cells.map(dict(enumerate(map(len, sets)))) == keys["n_tokens"]
    shown = pd.Series(cells[whole].to_numpy(dtype=np.int64), index=as_names(keys.loc[whole, "probe_id"]))
    shown = shown[~shown.index.duplicated()]
    asked = [one.astype(np.float64) for one in sets]
    middle = [float(np.median((one[:, 2] - one[:, 0]) * (one[:, 3] - one[:, 1]))) for one in asked]
    parts = [_scales(block, shown, asked, middle) for block in _blocks(read_probe_records(run.probe_file))]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=list(SCALES), dtype=float)
    return found.groupby(level=0, sort=False).last().rename_axis("probe_id") if found.index.has_duplicates else found


def _blocks(probes: Iterator[dict[str, Any]]) -> Iterator[list[tuple[str, Boxes]]]:
    """Probes with regions about the original image, some at a time: name and regions."""
    asked = (
        (str(probe["id"]), probe["regions"])
        for probe in probes
        if probe.get("view", ORIGINAL) == ORIGINAL and probe["regions"]
    )
    while block := list(islice(asked, PROBES_AT_ONCE)):
        yield block


def _scales(
    block: list[tuple[str, Boxes]], shown: pd.Series[int], cells: list[NDArray[np.float64]], middle: list[float]
) -> pd.DataFrame:
    names = pd.Index([name for name, _ in block], dtype="str", name="probe_id")
    place = shown.index.get_indexer(names)
    area, median = np.full(len(block), np.nan), np.full(len(block), np.nan)
    which = np.where(place >= 0, shown.to_numpy()[place], -1) if len(shown) else np.full(len(block), -1)
    for one in np.unique(which[which >= 0]):
        own = np.flatnonzero(which == one)
        area[own], median[own] = region_areas(cells[one], [block[i][1] for i in own]), middle[one]
    scales = dict(zip(SCALES, (area, median, area / median), strict=True))
    return pd.DataFrame(scales, index=names)[which >= 0]
