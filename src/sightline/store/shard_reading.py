"""Shard files opened with their mark compared: nothing damaged, and nothing of another run, is taken for rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.errors import SightlineError
from sightline.places import Place, told_of
from sightline.store.marks import DamagedError, Mark, read_marked
from sightline.store.shard_files import ShardFile, ShardPiece

BATCH = 65_536
"""Rows that are held at once where files are read in batches."""


@dataclass(frozen=True)
class Owner:
    """What the files of an arm, or image records, must say of themselves."""

    path: Place
    """The run folder, for messages."""
    run: str
    arm: str | None = None
    """None of image records."""
    marked: bool = False
    """Whether all of the run's files have a mark, because no earlier release wrote any."""

    def problem(self, file: ShardFile, mark: Mark | None) -> str:
        """Why a file does not belong here; "" where it does. What has no mark is taken as it is."""
        what = "image records" if self.arm is None else "rows"
        if mark is None:
            return ""
        if mark.run != self.run:
            return f"holds {what} of another run, of {mark.model}"
        if mark.arm != self.arm or (self.arm is None and mark.version != file.version):
            told = f"rows of {mark.arm}" if mark.arm is not None else f"image records {mark.version}".rstrip()
            return f"holds {told}, not {what} of {self.arm or 'this version'}"
        held = [shard.shard for shard in mark.shards]
        if held != list(file.shards):
            return f"holds shard{'s' * (len(held) != 1)} {_span(held)}, as its name does not say"
        return ""

    def opened(self, file: ShardFile, *, footer_alone: bool = False) -> tuple[pq.ParquetFile, Mark | None]:
        """The file, or one line that says what is wrong with it and how to go on.

        ``footer_alone`` leaves its checksum to others, for whoever cannot wait until all of it has been read.
        """
        try:
            parquet, mark = read_marked(file.path, must_be_marked=self.marked or file.packed, footer_alone=footer_alone)
        except DamagedError as error:
            raise SightlineError(self.line(file, f"is damaged ({error})")) from None
        if problem := self.problem(file, mark):
            raise SightlineError(self.line(file, problem))
        return parquet, mark

    def line(self, file: ShardFile, problem: str) -> str:
        """What is wrong with a file, and how to go on."""
        return (
            f"{file.path} {problem}; set it aside with `sightline verify {self.path} --repair` "
            "and run the same command again"
        )

    def read(self, piece: ShardPiece, columns: list[str] | None = None) -> pa.Table:
        """The rows of a piece, or only some of their columns."""
        parquet, mark = self.opened(piece.file)
        with self._naming(piece.file):
            table = parquet.read(columns=columns).replace_schema_metadata(None)
        start, stop = bounds(piece, mark, table.num_rows)
        return table.slice(start, stop - start)

    def batches(self, piece: ShardPiece, columns: list[str] | None = None, rows: int = BATCH) -> Iterator[pa.Table]:
        """The same in batches, so that a file of any size fits into memory."""
        yield from self.batches_of(self.opened(piece.file), piece, columns, rows)

    def batches_of(
        self,
        opened: tuple[pq.ParquetFile, Mark | None],
        piece: ShardPiece,
        columns: list[str] | None = None,
        rows: int = BATCH,
    ) -> Iterator[pa.Table]:
        """The same of a file that is open already."""
        parquet, mark = opened
        start, stop = bounds(piece, mark, parquet.metadata.num_rows)
        place = 0
        with self._naming(piece.file):
            for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
                first, last = max(start, place), min(stop, place + batch.num_rows)
                if first < last:
                    table = pa.Table.from_batches([batch.slice(first - place, last - first)])
                    yield table.replace_schema_metadata(None)
                place += batch.num_rows

    @contextmanager
    def _naming(self, file: ShardFile) -> Iterator[None]:
        """Errors of reading become one line that names the file."""
        try:
            with told_of(file.path, "read"):
                yield
        except (pa.ArrowException, OSError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SightlineError(self.line(file, f"cannot be read ({line})")) from None


def bounds(piece: ShardPiece, mark: Mark | None, rows: int) -> tuple[int, int]:
    """(start, stop) of a piece's rows within its file."""
    return (0, rows) if piece.whole or mark is None else mark.within(piece.first, piece.last)


def _span(shards: list[int]) -> str:
    return f"{shards[0]}" if len(shards) == 1 else f"{shards[0]} to {shards[-1]}" if shards else "none"
