"""A run of some shards, for tests of folders and of reading them."""

import shutil
from pathlib import Path

import pytest
from benchmarks.large_runs import Plan, write_large_run

PLAN = Plan(rows=600, arms=("full", "target:0.3", "grid:0.3"), probes_per_image=5, images_per_shard=6)
"""200 probes on 40 images in 7 shards."""


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run; nobody changes it."""
    return write_large_run(tmp_path_factory.mktemp("runs") / "finished", PLAN)


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "run"))
