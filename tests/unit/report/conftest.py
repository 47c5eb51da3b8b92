from __future__ import annotations

from pathlib import Path

import pytest

from sightline.report.build import build_report
from tests.unit.report.cost_cards import make_cards
from tests.unit.report.fake_open_run import make_open_run
from tests.unit.report.fake_run import make_run

DRAWS = 300


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic run of 8 arms over 20 images."""
    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report.html."""
    return build_report([run], tmp_path_factory.mktemp("report"), draws=DRAWS)


@pytest.fixture(scope="session")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic run of 10 arms over two open questions on each of 18 pages."""
    return make_open_run(tmp_path_factory.mktemp("open_runs") / "run")


@pytest.fixture(scope="session")
def open_report(open_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its report.html."""
    return build_report([open_run], tmp_path_factory.mktemp("open_report"), draws=DRAWS)


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cost card of each kind, by kind."""
    return make_cards(tmp_path_factory.mktemp("cards"))
