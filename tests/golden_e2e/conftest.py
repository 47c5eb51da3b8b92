from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import golden_dir
from tests.golden_e2e.reference import Encoder, read_runs


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_run" not in metafunc.fixturenames:
        return
    folder = golden_dir(metafunc.config, "golden_e2e")
    if not (folder / "runs").is_dir():
        reason = f"no recorded runs in {folder}: pass --golden-dir DIR"
        metafunc.parametrize("golden_run", [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
        return
    runs = sorted(read_runs(folder), key=lambda run: run.group)  # an encoder keeps the images of one group
    metafunc.parametrize(
        "golden_run", [pytest.param(run, id=run.name, marks=pytest.mark.xdist_group(run.group)) for run in runs]
    )


@pytest.fixture(scope="session")
def encoder(data: Path) -> Encoder:
    return Encoder(data)
