from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from sightline.cli import app
from sightline.errors import SightlineError
from sightline.rows import load_run
from sightline.store import RunFolder
from sightline.store.leases import locked
from tests.unit.report.fake_run import make_run


def called(*words: str) -> Result:
    return CliRunner().invoke(app, list(words), catch_exceptions=False)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path / "run", images=3, arms=("full", "target:0.3"))


def test_verify_says_that_nothing_is_wrong(run: Path) -> None:
    # This run's probes are written without the first line's digest, and it has one shard.
    result = called("verify", str(run))
    assert (result.exit_code, result.stdout.strip()) == (0, f"{run}: 3 files, 12 rows, nothing wrong")


def test_verify_names_what_is_wrong_and_sets_it_aside(run: Path) -> None:
    file = RunFolder(run).rows_file("full", 0)
    file.write_bytes(file.read_bytes()[:-1])
    result = called("verify", str(run), str(run))
    assert result.exit_code == 1
    assert result.stdout.count("00000.parquet is damaged") == 2
    assert file.exists(), "nothing is touched without --repair"
    result = called("verify", str(run), "--repair")
    assert result.exit_code == 1
    assert "; set aside as 00000.parquet.damaged" in result.stdout
    assert "run the same `sightline run` again" in result.stdout
    assert not file.exists()
    assert load_run(run).missing == 1


def test_what_is_no_run_is_said_to_be_none(tmp_path: Path) -> None:
    result = called("verify", str(tmp_path))
    assert result.exit_code == 1
    assert "is not a run folder: it has no run.json" in result.stdout


def test_compact_says_what_became_of_the_files(run: Path, tmp_path: Path) -> None:
    before = load_run(run).rows
    result = called("compact", str(run))
    assert result.exit_code == 0
    assert f"{run}: 3 files of" in result.stdout
    result = called("compact", str(run), "--out", str(tmp_path / "copy"))
    assert f"{tmp_path / 'copy'}: 3 files" in result.stdout
    assert load_run(tmp_path / "copy").rows.equals(before)


def test_a_folder_that_somebody_writes_to_is_neither_compacted_nor_repaired(run: Path) -> None:
    before = sorted(file.name for file in run.rglob("*.parquet"))
    with locked(run):
        for words in (["compact", str(run)], ["verify", str(run), "--repair"]):
            with pytest.raises(SightlineError, match="is being written by"):
                called(*words)
        assert called("verify", str(run)).exit_code == 0
    assert sorted(file.name for file in run.rglob("*.parquet")) == before
    assert called("compact", str(run)).exit_code == 0
