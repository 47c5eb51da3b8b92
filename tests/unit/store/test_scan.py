from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sightline.core.row import row_schema
from sightline.errors import SightlineError
from sightline.rows import load_run
from sightline.store import RunFolder
from sightline.store.compaction import compact_run
from sightline.store.shard_files import pieces
from tests.changed_run import rewritten
from tests.unit.report.fake_run import make_run


def scanned(path: Path, *asked: object, **settings: object) -> pa.Table:
    return pa.Table.from_batches(load_run(path).scan(*asked, **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [1, 7, 64, 10_000])
def test_batches_are_the_rows_in_order(finished: Path, rows: int) -> None:
    run = load_run(finished)
    batches = list(run.scan(rows=rows))
    assert pa.Table.from_batches(batches).equals(run.rows.combine_chunks())
    assert all(batch.num_rows == rows for batch in batches[:-1])


def test_columns_arms_and_filters_choose(finished: Path) -> None:
    whole = load_run(finished).rows
    where = pc.field("correct") & (pc.field("ecr") < 0.5)
    some = scanned(finished, ["ecr", "probe_id"], arms=["grid:0.3", "full"], where=where)
    own = pa.concat_tables([whole.filter(pc.field("arm") == arm) for arm in ("grid:0.3", "full")])
    expected = own.filter(where).select(["ecr", "probe_id"])
    assert some.num_rows > 0
    assert some.equals(expected.combine_chunks())


def test_a_compacted_run_is_scanned_in_the_same_order(finished: Path, run_copy: Path) -> None:
    compact_run(run_copy)
    assert scanned(run_copy).equals(load_run(finished).rows.combine_chunks())


def test_what_is_not_there_is_answered_with_what_may_be_meant(finished: Path) -> None:
    with pytest.raises(SightlineError, match="rows have no column 'legibilty'; did you mean legibility"):
        scanned(finished, ["legibilty"])
    with pytest.raises(SightlineError, match=r"no arm 'target:0\.4'; did you mean target:0\.3"):
        scanned(finished, arms=["target:0.4"])


@pytest.mark.parametrize("arms", [("full", "target:0.3", "random:0.3"), ("target:0.3",), ("full",)])
def test_columns_that_rows_got_later_are_null_and_in_their_places(tmp_path: Path, arms: tuple[str, ...]) -> None:
    run = make_run(tmp_path / "run", images=6, arms=("full", "target:0.3", "random:0.3"))
    for arm in arms:
        for file in RunFolder(run).files_of_rows(arm):
            rewritten(file.path, lambda table: table.drop_columns(["visible", "legibility"]))
    frame = load_run(run).frame()
    assert [name for name in frame.columns if name in row_schema().names] == row_schema().names
    for name in ("visible", "legibility"):
        assert (frame[name].isna() == frame["arm"].isin(arms)).all()
    assert scanned(run).equals(load_run(run).rows.combine_chunks())
    compact = load_run(run).compact_frame(lambda name: True)
    assert compact["legibility"].isna().tolist() == frame["legibility"].isna().tolist()
    assert load_run(run).columns == load_run(run).rows.column_names


def test_probes_come_one_by_one(finished: Path) -> None:
    run = load_run(finished)
    assert list(run.each_probe()) == run.probes
    assert len(run.probes) == 200


def test_a_column_that_some_files_have_lost_is_one_line(run_copy: Path) -> None:
    """Files whose checksum holds, with one column fewer than the first has."""
    folder = RunFolder(run_copy)
    for shard in (3, 4):
        path = folder.rows_file("grid:0.3", shard)
        table = load_run(run_copy).owner("grid:0.3").read(pieces(folder.files_of_rows("grid:0.3"))[shard])
        path.unlink()
        folder.write_row_table("grid:0.3", shard, table.drop_columns(["margin"]))
    with pytest.raises(SightlineError, match=r"00003.parquet is damaged: it has no column 'margin'"):
        scanned(run_copy)
