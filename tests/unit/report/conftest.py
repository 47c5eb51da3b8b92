from __future__ import annotations

from pathlib import Path

import pytest

from sightline.report.build import build_report
from tests.unit.report.cost_cards import make_cards
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
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cost card of each kind, by kind."""
    return make_cards(tmp_path_factory.mktemp("cards"))
