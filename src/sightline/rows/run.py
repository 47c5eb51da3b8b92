"""A finished (or running) run as tables: ``load_run(path)``; and which of its images are the same picture."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.core.probe import ORIGINAL
from sightline.core.row import image_schema
from sightline.errors import SightlineError, nearest, refuse_unknown
from sightline.places.listing import Place, place
from sightline.rows.picture import ArmPicture, draw_arms, with_texts
from sightline.rows.reader import ROWS, compact_frame, read_probe_records, read_table, scan_rows, stored_schema
from sightline.rows.row_checks import check_images, stack_tables
from sightline.store.folder import RunFiles, RunPlace, open_files, refuse_conflicts
from sightline.store.manifest import mixture_of
from sightline.store.shard_files import Owner, ShardPiece, unpack_cells, unpack_mask

if TYPE_CHECKING:
    from PIL import Image

# Rows, probes and images of a run by name. What is misspelt is answered with what may have been meant.

Row: TypeAlias = "Mapping[str, Any] | pd.Series[Any]"
"""A row of a run, by column."""


def rows_of(run: Run, arm: str, *, probe: str | None = None, view: str | None = None) -> pa.Table:
    """One row per probe of an arm, or of one probe alone; where a probe is asked about several views, the original's.

    ``view`` names another.
    """
    refuse_unknown(arm, run.arms, f"{run.path} has no arm '{arm}'", "it has")
    rows = run.rows.filter(pc.equal(run.rows.column("arm"), arm))
    if probe is not None:
        rows = rows.filter(pc.equal(rows.column("probe_id"), probe))
    views = pc.unique(rows.column("view")).to_pylist()
    each_once = len(pc.unique(rows.column("probe_id"))) == rows.num_rows
    if not views or (view is None and each_once):
        return rows
    if (view or ORIGINAL) not in views:
        said = "asks about several views" if view is None else f"has no view '{view}'"
        raise SightlineError(f"{run.path} {said} under {arm}; choose one of {', '.join(views)}")
    return rows.filter(pc.equal(rows.column("view"), view or ORIGINAL))


def row_of(run: Run, probe: str, arm: str, view: str | None = None) -> dict[str, Any]:
    """The row of one probe under one arm."""
    rows = rows_of(run, arm, probe=probe, view=view).to_pylist()
    if rows:
        return dict(rows[0])
    known = [str(record["id"]) for record in run.probes]
    if probe in known:
        raise SightlineError(f"{run.path} has no row of {probe} under {arm}")
    first = f"its first is {known[0]}" if known else "it has none"
    raise SightlineError(f"{run.path} has no probe '{probe}'; {nearest(probe, known, first)}")


def plain_arms(run: Run, probe: str) -> list[str]:
    """The arms without an intervention that a probe has rows of; the run's first arm where there are none."""
    rows = run.rows.filter(pc.equal(run.rows.column("probe_id"), probe))
    plain = rows.filter(pc.equal(rows.column("arm"), rows.column("plain_arm")))
    return list(dict.fromkeys(plain.column("arm").to_pylist())) or run.arms[:1]


def probe_of(run: Run, row: Row) -> dict[str, Any]:
    """The record that a row answers; about a view that an intervention made, the one about the original."""
    asked = [record for record in run.probes if str(record["id"]) == row["probe_id"]]
    return next((record for record in asked if record.get("view", ORIGINAL) == row["view"]), asked[0])


def image_of(run: Run, row: Row) -> dict[str, Any]:
    """The record of the image that a row is about: its size, cells and preview."""
    found = run.images.filter(pc.equal(run.images.column("image_key"), row["image_key"]))
    if not found.num_rows:
        raise SightlineError(f"{run.path} has no image record of {row['image_key']}: its images are incomplete")
    return dict(found.slice(0, 1).to_pylist()[0])


MASKS = ("kept_mask", "lineage_mask")
NAMED = 3
"""Images that a sentence names; it counts the others."""


@dataclass(frozen=True)
class Run(RunFiles):
    """A run folder read into memory. Rows come in the order of arms, then shards, then probes."""

    def __repr__(self) -> str:
        model = self.manifest.get("model", "unknown model")
        arms = f"{len(self.arms)} arm{'s' * (len(self.arms) != 1)}"
        return f"Run({str(self.path)!r}: {model}, {arms}, {self.count} rows)"

    def _repr_html_(self) -> str:
        """What a notebook shows of it: arms by their main numbers, and pictures of a few cases."""
        from sightline.rows.notebook import shown

        return shown(self)

    @cached_property
    def count(self) -> int:
        """How many rows it has, of all arms."""
        return sum(batch.num_rows for batch in self.scan(["correct"]))

    @cached_property
    def rows(self) -> pa.Table:
        """One row per probe and arm; the columns are documented in ``sightline.core.row`` and by the scorer.

        All of them in memory: ``scan`` is for runs that are too large for that.
        """
        return read_table(self)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        arms: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        *,
        rows: int = ROWS,
    ) -> Iterator[pa.RecordBatch]:
        """The same rows in the same order, in batches of at most ``rows``, so that a run of any size can be read.

        Only some columns, only some arms, or only rows for which an Arrow expression is true:
        ``run.scan(["probe_id", "ecr"], arms=["target:0.3"], where=pc.field("ecr") < 0.1)``.
        """
        return scan_rows(self, columns, arms, where, rows)

    @cached_property
    def columns(self) -> list[str]:
        """The names of all columns that its rows have, in order."""
        return list(stored_schema(self).names)

    @cached_property
    def images(self) -> pa.Table:
        """One record per encoded image: cells, layout, preview."""
        owner = self.owner()
        tables = ((piece.file.path, check_images(owner.read(piece), piece.file.path)) for piece in self.image_pieces())
        return _each_once(stack_tables(tables, image_schema()))

    def frame(self, *, texts: bool = True) -> pd.DataFrame:
        """The rows and, as last columns, what was asked: ``question``, ``target_text``, ``source_text``.

        Images of the same pixels have one ``image_id``, as statistics count them; ``rows`` has those that are stored.
        Of open questions also the accepted ``answers`` and the ``roles`` of regions, as tuples. ``texts=False`` leaves
        all of them out. Masks are packed bits, as they are stored; ``masks`` unpacks them.
        """
        frame: pd.DataFrame = self.rows.to_pandas()
        frame["image_id"] = with_same_images(frame["image_id"], self.same_images)
        return with_texts(frame, self.probes) if texts else frame

    def compact_frame(self, wanted: Callable[[str], bool], same: Mapping[str, str] | None = None) -> pd.DataFrame:
        """The rows in a few bytes a value (``reader.compact_frame``): the columns that are ``wanted`` by name.

        Images of the same pixels have one ``image_id``: the run's own, or those of several runs together in ``same``.
        """
        frame = compact_frame(self, wanted)
        if "image_id" in frame:
            frame["image_id"] = with_same_images(frame["image_id"].array, self.same_images if same is None else same)
        return frame

    def row(self, probe: str, arm: str, view: str | None = None) -> dict[str, Any]:
        """One probe under one arm; ``view`` where the probe set asks about several, without it the original."""
        return row_of(self, probe, arm, view)

    def masks(self, arm: str, *, lineage: bool = False, view: str | None = None) -> dict[str, NDArray[np.bool_]]:
        """(N,) bool by probe id, a place per cell of the image that the arm looked at: the tokens it kept.

        ``lineage`` marks instead every token that flowed into a kept one; where nothing is merged both are the same.
        """
        found = {}
        for row in rows_of(self, arm, view=view).select(["probe_id", "image_key", *MASKS]).to_pylist():
            packed = (lineage and row["lineage_mask"]) or row["kept_mask"]
            found[row["probe_id"]] = unpack_mask(packed, len(self._cells_of(row["image_key"])))
        return found

    def cells(self, of: str | Row, arm: str | None = None) -> NDArray[np.float32]:
        """(N, 4) x1, y1, x2, y2 of each token's cell in fractions of the image; masks have a place for each of them.

        ``of`` is a row, or a probe's id with the arm that looked at it (the run's first if none is named): an arm that
        is shown a smaller image has fewer cells.
        """
        row = self.row(of, arm or self.arms[0]) if isinstance(of, str) else of
        return self._cells_of(row["image_key"])

    def picture(
        self, probe: str, *arms: str, images: Place | str | None = None, view: str | None = None
    ) -> Image.Image:
        """What arms kept of a probe's image: kept cells lit, others dimmed, the regions outlined; several side by side.

        With ``images``, the folder that image names are relative to, as sharp as the file, otherwise from the small
        preview in the run folder; ``picture.info["sources"]`` says for each arm which it was, ``file`` or ``preview``.
        Where no arm is named, all without an intervention.
        """
        pictures = self._arm_pictures(probe, *arms, view=view)
        return draw_arms(pictures, None if images is None else place(images))

    def _arm_pictures(self, probe: str, *arms: str, view: str | None = None) -> list[ArmPicture]:
        """What the pictures of a probe under some arms are drawn from; of none, all that are plain."""
        rows = [self.row(probe, arm, view) for arm in arms or plain_arms(self, probe)]
        return [ArmPicture(row, image_of(self, row), probe_of(self, row)) for row in rows]

    @cached_property
    def probes(self) -> list[dict[str, Any]]:
        """The audited probes as written into the run folder (without the header line), all in memory."""
        return list(self.each_probe())

    def each_probe(self, saying: str = "") -> Iterator[dict[str, Any]]:
        """The same one after the other; only those whose line has some text, where one is named."""
        return read_probe_records(self.probe_file, saying)

    @cached_property
    def same_images(self) -> dict[str, str]:
        """Image ids that show the same pixels as another -> the first of those by name, under which they count."""
        return same_images([self])

    @property
    def joined(self) -> str:
        """Which images count as one because their pixels are the same, in a sentence; "" for none."""
        return joined_words(self.same_images)

    def _cells_of(self, image_key: str) -> NDArray[np.float32]:
        if image_key not in self._packed_cells:
            raise SightlineError(f"{self.path} has no image record of {image_key}: its images are incomplete")
        return unpack_cells(self._packed_cells[image_key])

    @cached_property
    def _packed_cells(self) -> dict[str, bytes]:
        """By image key."""
        keys, cells = (self.images.column(name).to_pylist() for name in ("image_key", "cells"))
        return dict(zip(keys, cells, strict=True))

    @property
    def unfinished(self) -> str:
        """What is still to be computed, in a sentence; "" for a finished run."""
        reasons = []
        if missing := self.missing:
            part = self.manifest.get("part")
            hint = f" (the folder is part {part[0]}/{part[1]}; --as-one joins parts)" if part else ""
            reasons.append(f"{missing} of its shards are still to be computed{hint}")
        if self.failed:
            reasons.append(self._failed)
        if self.bad_images and not self.manifest.get("skip_bad_images"):
            reasons.append(self._unreadable)
        return f"the run is not finished: {', and '.join(reasons)}" if reasons else ""

    @property
    def left_out(self) -> str:
        """What the run lacks on purpose, in a sentence: images that ``--skip-bad-images`` left out; "" for none."""
        return self._unreadable if self.bad_images and self.manifest.get("skip_bad_images") else ""

    @cached_property
    def mixture(self) -> str:
        """Under which settings rows were computed, in a sentence, where they were not all computed alike; else ""."""
        return mixture_of(self.pieces_of_arms())

    @property
    def bad_images(self) -> dict[str, str]:
        """Images that could not be read, by name, with the reason; their probes have no rows."""
        return {name: str(entry["reason"]) for name, entry in self.manifest.get("bad_images", {}).items()}

    @property
    def failed(self) -> dict[str, dict[str, str]]:
        """Work that was set aside while the rest went on: by task (a shard, or a version of its images) and arm, with
        the reason. A command that names the arm tries it again."""
        found: dict[str, dict[str, str]] = self.manifest.get("failed", {})
        return found

    @property
    def _failed(self) -> str:
        pieces = [(task, arm, reason) for task, arms in self.failed.items() for arm, reason in arms.items()]
        task, arm, reason = pieces[0]
        more = f", and {len(pieces) - 1} more" if len(pieces) > 1 else ""
        return f"shard {task} under {arm} was set aside: {reason}{more}"

    @property
    def _unreadable(self) -> str:
        names = list(self.bad_images)
        probes = sum(probe["image"] in self.bad_images for probe in self.each_probe())
        named = ", ".join(names[:NAMED]) + (", ..." if len(names) > NAMED else "")
        images = f"{len(names)} image{'s' * (len(names) > 1)}"
        return f"{images} could not be read ({named}), so that {probes} probes have no rows"


def load_run(path: RunPlace) -> Run:
    """Opens a run folder, by path or URL. ``run.rows`` is an Arrow table, ``run.frame()`` a pandas frame.

    Several folders, or one that holds them, are one run in parts if they are of one model and probe set.
    """
    files = open_files(path)
    run = Run(files.path, files.manifest, files.parts)
    if run.missing == len(run.arms) * run.manifest["shards"]:
        if run.failed:
            raise SightlineError(f"{run.path} has no finished shard: {run._failed}")
        raise SightlineError(
            f"{run.path} has no finished shard yet; run `sightline run` with the same arguments to go on"
        )
    if len(run.folders) > 1:
        refuse_conflicts(run.folders, run.arms)
    return run


def _each_once(images: pa.Table) -> pa.Table:
    """The first record of every image: one whose probes are divided among shards is recorded in each."""
    codes = images.column("image_key").combine_chunks().dictionary_encode().indices
    _, first = np.unique(codes.to_numpy(zero_copy_only=False), return_index=True)
    return images if len(first) == images.num_rows else images.take(pa.array(np.sort(first)))


# Images are their pixels: ids of pictures that are equal are one image to every statistic. A picture is known by the
# digest of its decoded pixels, and by that of its file. Only plain views count: what a control shows of another image
# is not the image of its question.

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
