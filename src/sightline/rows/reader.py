"""The one way in which rows leave their files: in batches, in the run's order, with checksums compared.

Whatever shape somebody wants rows in is made of those batches: a table of all of them (``read_table``), a frame that
takes a few bytes a value (``compact_frame``), or some rows by their numbers (``rows_at``). Memory grows with what is
asked for, never with the run. Which of the rows count is said behind that.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from sightline.core.prefix import NO_CELLS
from sightline.core.probe import ORIGINAL
from sightline.core.row import ROW_COLUMNS, row_schema
from sightline.errors import SightlineError, refuse_unknown
from sightline.places.listing import Place, open_lines, store_errors
from sightline.probes.dialects import probe_from_own
from sightline.rows.row_checks import ALWAYS, WAY_OUT, check_rows, stack_tables
from sightline.statistics.arm_rows import (
    ColumnArray,
    are_in_words,
    are_positives,
    as_names,
    column_array,
    looked_up,
    shared_arrays,
)
from sightline.statistics.metrics import ZERO_COVERAGE
from sightline.store.folder import RunFiles
from sightline.store.shard_files import Owner, ShardFile, ShardPiece, bounds, in_batches

ROWS = 8192
"""Rows of a batch."""
KEPT_GROUPS = 96
"""Row groups of which single rows were asked for that stay in memory: the next one is mostly of the same."""
_OF_TODAY = frozenset(column.name for column in ROW_COLUMNS)
"""Columns that every row has which is written today."""


def scan_rows(
    run: RunFiles,
    columns: Sequence[str] | None = None,
    arms: Sequence[str] | None = None,
    where: pc.Expression | None = None,
    rows: int = ROWS,
) -> Iterator[pa.RecordBatch]:
    """See ``Run.scan``. What is not there is refused here, before the first batch is asked for."""
    chosen = run.arms if arms is None else arms
    for arm in chosen:
        refuse_unknown(arm, run.arms, f"{run.path} has no arm '{arm}'", "there are")
    schema = stored_schema(run)
    names = schema.names
    wanted = names if columns is None else columns
    for name in wanted:
        refuse_unknown(name, names, f"rows have no column '{name}'", "there are")
    # An expression does not tell which columns it reads: those that it may name are read too.
    asked = "" if where is None else str(where)
    read = [field for field in schema if field.name in wanted or field.name in asked]
    tables = (table for piece, owner in run.pieces_of_arms(chosen) for table in read_piece(piece, owner, read, rows))
    found = (table.select(wanted) if where is None else table.filter(where).select(wanted) for table in tables)
    return (batch for table in in_batches(found, rows) for batch in table.combine_chunks().to_batches())


def read_piece(
    piece: ShardPiece, owner: Owner, fields: Sequence[pa.Field] | None = None, rows: int = ROWS
) -> Iterator[pa.Table]:
    """Some columns of a piece's rows, in this order and in batches; null where rows are older than their column.

    Without ``fields`` all that rows of this file have.
    """
    opened = owner.opened(piece.file)
    schema = opened[0].schema_arrow
    fields = list(_completed(schema)) if fields is None else fields
    there = []
    for field in fields:
        if field.name in schema.names:
            there.append(field.name)
            if schema.field(field.name).type != field.type:
                found = schema.field(field.name).type
                raise _damaged(piece, f"column '{field.name}' is {found}, not {field.type}")
        elif field.name in ALWAYS or field.name not in _OF_TODAY:
            raise _damaged(piece, f"it has no column '{field.name}'")
    for table in owner.batches_of(opened, piece, there, rows):
        if len(there) == len(fields):
            yield table.select(there)
        else:
            rest = (table.column(f.name) if f.name in there else pa.nulls(len(table), f.type) for f in fields)
            yield pa.table(list(rest), schema=pa.schema(fields))


def _damaged(piece: ShardPiece, what: str) -> SightlineError:
    return SightlineError(f"{piece.file.path} is damaged: {what}; {WAY_OUT}")


def stored_schema(run: RunFiles) -> pa.Schema:
    """The columns of a run's rows with their types, its scorer's own among them, in order; known from one file.

    A column that rows have today and this file does not stands in its place: rows are older than it.
    """
    for piece, owner in run.pieces_of_arms():
        return _completed(owner.opened(piece.file, footer_alone=True)[0].schema_arrow)
    return row_schema()


def _completed(schema: pa.Schema) -> pa.Schema:
    schema = schema.remove_metadata()
    if _OF_TODAY.issubset(schema.names):
        return schema
    kinds = row_schema()
    for before, column in pairwise(ROW_COLUMNS):
        if column.name not in schema.names and before.name in schema.names:
            schema = schema.insert(schema.get_field_index(before.name) + 1, kinds.field(column.name))
    return schema


def read_table(run: RunFiles) -> pa.Table:
    """All rows with all columns, if every column holds what it is for."""
    tables = []
    for piece, owner in run.pieces_of_arms():
        path = piece.file.path
        parts = list(read_piece(piece, owner))
        if parts:
            tables.append((path, check_rows(pa.concat_tables(parts), str(owner.arm), path)))
    return stack_tables(tables, row_schema())


def count_rows(run: RunFiles) -> int:
    """How many rows a run has so far, from what its files say of themselves."""
    return sum(rows for _, _, rows in _counted(run))


def rows_at(run: RunFiles, numbers: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Some columns of some rows, by their numbers in the run's order; only the files that hold them are read."""
    asked = np.asarray(numbers, dtype=np.int64)
    order = np.argsort(asked, kind="stable")
    ascending, start = asked[order], 0
    schema = stored_schema(run)
    fields = [schema.field(name) for name in columns]
    found = [pa.schema(fields).empty_table()]
    for piece, owner, rows in _counted(run):
        low, high = np.searchsorted(ascending, [start, start + rows])
        if low < high:
            table = pa.concat_tables(read_piece(piece, owner, fields))
            found.append(table.take(pa.array(ascending[low:high] - start)))
        start += rows
    back = np.empty(len(order), dtype=np.int64)
    back[order] = np.arange(len(order))
    return pa.concat_tables(found).take(pa.array(back))


def _counted(run: RunFiles) -> Iterator[tuple[ShardPiece, Owner, int]]:
    """Every piece of a run's rows, in its order, with its number of rows."""
    for piece, owner in run.pieces_of_arms():
        parquet, mark = owner.opened(piece.file, footer_alone=True)
        start, stop = bounds(piece, mark, parquet.metadata.num_rows)
        yield piece, owner, stop - start


def read_coded(piece: ShardPiece, owner: Owner, without: Sequence[str]) -> tuple[int, pa.Table]:
    """The rows of a piece, and the first of them within its file: strings by code, some columns left out.

    For whoever looks on while a run is written: whose the file is, is compared; its checksum, for which all of it would
    have to be read, is left to others.
    """
    parquet, mark = owner.opened(piece.file, footer_alone=True)
    schema = parquet.schema_arrow
    start, stop = bounds(piece, mark, parquet.metadata.num_rows)
    wanted = [name for name in schema.names if name not in without]
    strings = [each.name for each in schema if pa.types.is_string(each.type) and each.name in wanted]
    table = pq.read_table(
        piece.file.path, columns=wanted, partitioning=None, read_dictionary=strings, use_threads=False
    ).replace_schema_metadata(None)
    return start, table.slice(start, stop - start)


def read_row(file: ShardFile, owner: Owner, row: int, columns: tuple[str, ...]) -> dict[str, Any]:
    """Those of some columns that a file has, of one of its rows. The row group is read, and kept for the next row.

    A finished file never changes: its checksum is compared once in a process.
    """
    starts = _group_starts(file, owner)
    group = bisect_right(starts, row) - 1
    return dict(_row_group(file, owner, group, columns).slice(row - starts[group], 1).to_pylist()[0])


@lru_cache(maxsize=4096)
def _group_starts(file: ShardFile, owner: Owner) -> tuple[int, ...]:
    meta = owner.opened(file)[0].metadata
    return tuple(accumulate((meta.row_group(i).num_rows for i in range(meta.num_row_groups)), initial=0))


@lru_cache(maxsize=KEPT_GROUPS)
def _row_group(file: ShardFile, owner: Owner, group: int, columns: tuple[str, ...]) -> pa.Table:
    with owner.naming(file):
        return owner.opened(file, footer_alone=True)[0].read_row_group(group, columns=columns, use_threads=False)


def read_probe_records(path: Place, saying: str = "") -> Iterator[dict[str, Any]]:
    """The records of ``probes.jsonl`` one after the other, without its header; only those whose line has some text."""
    try:
        with store_errors(path, "read"), open_lines(path) as lines:
            for number, line in enumerate(lines, start=1):
                record = _probe_record(line, path, number) if saying in line and line.strip() else {}
                if record and "sightline_probes" not in record:
                    yield record
    except OSError as error:
        raise SightlineError(f"{path} cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise SightlineError(f"{path} is damaged: it is not UTF-8 text (byte {error.start}); restore it") from None


def _probe_record(line: str, path: Place, number: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
        if not isinstance(record, dict):
            raise SightlineError("it is no JSON object")
        if "sightline_probes" not in record:
            probe_from_own(record)
        return record
    except (SightlineError, ValueError, RecursionError) as problem:
        raise SightlineError(
            f"{path} line {number} is damaged: {problem}; restore the file, or run the same command again"
        ) from None


MERGED = "merged"
"""A column beside those of the rows: whether tokens were merged, which the lineage mask says by being there."""
_LINEAGE = "lineage_mask"


def compact_frame(run: RunFiles, wanted: Callable[[str], bool]) -> pd.DataFrame:
    """The rows of a run in its order, with those of their columns that are wanted by name, and ``merged``.

    Rows are read in batches and every column becomes one array, so that nothing is in memory twice. Text becomes
    categorical, with its categories in the order of the names; what is missing is NaN, or NA among true and false.
    Lists and masks are left out.
    """
    kinds = {field.name: field.type for field in stored_schema(run) if wanted(field.name) and _is_plain(field.type)}
    length = count_rows(run)
    columns: dict[str, ColumnArray] = {name: column_array(kind, length) for name, kind in kinds.items()}
    columns[MERGED] = column_array(pa.bool_(), length)
    for batch in scan_rows(run, [*kinds, _LINEAGE]):
        for name in kinds:
            columns[name].append(batch.column(name))
        columns[MERGED].append(pc.is_valid(batch.column(_LINEAGE)))
    made = shared_arrays({name: columns.pop(name).finished() for name in list(columns)})
    return pd.DataFrame(made, copy=False)


def _is_plain(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


# Which rows of a run count, and a line for all that is left out.

CONTROL = "control_type"
"""What a probe of such a file says in its ``extra``; whoever does not say it is not looked at."""


def name_control_views(frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]]) -> None:
    """Gives rows of one-condition control files (the artifact's layout) the view that our own control sets name.

    Their probes say ``orig`` though the image is gray or somebody else's: such rows must not pass for plain ones.
    ``probes`` are those of the run that say ``CONTROL``.
    """
    views = {}
    for probe in probes:
        extra = probe.get("extra") or {}
        kind = extra.get("control_type") if isinstance(extra, dict) else None
        if kind in ("blank", "image_mismatch") and probe.get("view", ORIGINAL) == ORIGINAL:
            views[str(probe["id"])] = kind if kind == "blank" else f"{kind}_seed{extra.get('control_seed')}"
    if views:
        control = looked_up(frame["probe_id"], pd.Series(views))
        recast = control.notna() & (frame["view"] == ORIGINAL)
        for name in ("view", "intervention"):
            frame[name] = as_names(frame[name]).where(~recast, control)


def finite_in_every_arm(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Leaves out arms without a single finite margin, then probes whose margin is non-finite in any arm."""
    if "margin" not in frame:
        return frame
    finite = pd.Series(np.isfinite(frame["margin"].to_numpy(dtype=float, na_value=np.nan)), index=frame.index)
    if finite.all():
        return frame
    dead = [str(arm) for arm, good in finite.groupby(frame["arm"]).any().items() if not good]
    if dead:
        notes.append(f"arm {', '.join(dead)} has no finite margin and is left out; the model's scores overflowed")
    alive = ~frame["arm"].isin(dead)
    bad = sorted(frame.loc[alive & ~finite, "probe_id"].unique())
    if bad:
        notes.append(
            f"{len(bad)} probe{'s have' if len(bad) > 1 else ' has'} a non-finite margin in some arm "
            f"(first: {bad[0]}) and {'are' if len(bad) > 1 else 'is'} left out of every arm"
        )
    return frame[alive & ~frame["probe_id"].isin(bad)]


def finite_alone(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Rows of interventions with a finite margin; each is paired with a plain row of its probe, so it stands alone."""
    if "margin" not in frame:
        return frame
    finite = np.isfinite(frame["margin"].to_numpy(dtype=float, na_value=np.nan))
    if finite.all():
        return frame
    notes.append(f"{int((~finite).sum())} rows under an intervention have a non-finite margin and are left out")
    found: pd.DataFrame = frame[finite]
    return found


def paired(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Keeps the probes that every arm has: arms are compared on the same questions or not at all."""
    arms, probes = (pd.factorize(frame[name])[0].astype(np.int64) for name in ("arm", "probe_id"))
    answered = np.zeros((int(probes.max()) + 1, int(arms.max()) + 1), dtype=bool)
    answered[probes, arms] = True
    common: NDArray[np.bool_] = np.asarray(answered.all(axis=1))
    if common.all():
        return frame
    if not common.any():
        notes.append("no probe was answered by every arm yet: arms are summarised on different probes")
        return frame
    notes.append(f"{int((~common).sum())} of {len(common)} probes are missing from some arm and are left out")
    return frame[common[probes]].reset_index(drop=True)


NO_REGIONS = (
    "no probe has a region: there is no evidence to trace, so every geometric column is empty; "
    "sightline probes evidence PROBES --ocr WORDS --out NEW looks for the answers among the words of the pages"
)


def note_data(frame: pd.DataFrame, notes: list[str]) -> None:
    told = [name for name in ("probe_id", "image_id", "label", "n_regions", "score") if name in frame]
    probes = frame[told].drop_duplicates("probe_id")
    images = probes["image_id"].nunique()
    if images < 2:
        notes.append("fewer than two images: intervals resample images, so none can be given")
    labels = set(probes["label"].unique())
    if len(labels) < 2 and labels <= {"yes", "no"} and not are_in_words(probes).any():
        only = next(iter(labels), "no")
        notes.append(f"every probe has label {only}: AUROC and the rates of the other label are undefined")
    bare = int((probes["n_regions"].fillna(0) == 0).sum())
    if bare == len(probes):
        notes.append(NO_REGIONS)
    elif bare:
        notes.append(f"{bare} of {len(probes)} probes have no region; geometry is over the other {len(probes) - bare}")
    if bare < len(probes) and frame["ecr"].isna().all():
        notes.append(f"{NO_CELLS}, so every other geometric column is empty")
    hidden = unseen_evidence(frame)
    if hidden:
        notes.append(hidden)
    notes.extend(truncation_note(frame) + fallback_note(frame))


def truncation_note(frame: pd.DataFrame) -> list[str]:
    """A line about answers that ended at their longest instead of with a stop token; none where none did."""
    if "cut_off" not in frame:
        return []
    cut = frame["cut_off"].fillna(False).astype(bool)
    if not cut.any():
        return []
    longest = int(frame.loc[cut, "answer_tokens"].max())
    by_arm = ", ".join(f"{arm}: {count}" for arm, count in frame.loc[cut, "arm"].value_counts().items() if count)
    return [
        f"{int(cut.sum())} of {len(frame)} answers were cut off at the longest allowed ({longest} tokens) and are "
        f"scored as they stand ({by_arm}); --longest-answer allows more"
    ]


def fallback_note(frame: pd.DataFrame) -> list[str]:
    """A line about rows whose selector was given the whole prompt, since what it looks for is not in the question."""
    if "query_found" not in frame:
        return []
    lost = ~frame["query_found"].fillna(True).astype(bool)
    if not lost.any():
        return []
    arms = frame.loc[lost, "arm"].value_counts()
    told = ", ".join(f"{arms[arm]} of {(frame['arm'] == arm).sum()} rows of {arm}" for arm in arms.index if arms[arm])
    return [f"the text that the selector looks for is not in the question, so that it had the whole prompt: {told}"]


def oracle_words(box_source: object) -> str:
    """Said behind whatever is claimed of an oracle."""
    if box_source == "annotation":
        return "(oracle: reads the annotated boxes)"
    if box_source == "none":
        return "(oracle: knows what no deployed method could)"
    return "(oracle: reads boxes made from the annotation)"


# Evidence that no token comes from, before anything is pruned: image processors that crop leave the margins out.

NOT_ALL = 1.0 - 1e-9
"""Less than this is not fully visible; the rest is the last digits of region coordinates."""


def unseen_evidence(frame: pd.DataFrame) -> str:
    """How many positives, or questions, of a run lie outside what its model sees, in one line; "" where none does."""
    if "visible" not in frame:
        return ""
    visible = frame.loc[are_positives(frame), ["probe_id", "visible"]].groupby("probe_id")["visible"].max().dropna()
    hidden = int((visible <= ZERO_COVERAGE).sum())
    partly = int((visible < NOT_ALL).sum()) - hidden
    if not hidden + partly:
        return ""
    first, place, rest = (hidden, "wholly", f", {partly} more in part") if hidden else (partly, "in part", "")
    in_words = bool(are_in_words(frame).any())
    whose, coverage = ("regions of", "ECR") if in_words else ("", "PosECR")
    share = f"{whose} {first} of {len(visible)} {'questions' if in_words else 'positives'} ({first / len(visible):.0%})"
    return (
        f"{share.strip()} lie {place} outside what the model sees{rest if partly else ''}: "
        f"{coverage} counts that as lost, Relative {coverage} is about the visible part alone"
    )


def sentence(clause: str, run: str = "") -> str:
    """A clause as a sentence behind the name of its run, where runs have names."""
    return f"{f'{run}: ' if run else ''}{clause[0].upper()}{clause[1:]}."
