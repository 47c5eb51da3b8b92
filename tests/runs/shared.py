"""Run folders that no test changes, and reports on them, made once for all tests.

Whoever wants one with other arms, answers or damage makes it, or takes a copy.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.runs.pages import Page

# What makes them is imported when one is first asked for: most test processes ask for none or for few.


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """8 arms over 20 images."""
    from tests.runs.yes_no import make_run

    return make_run(tmp_path_factory.mktemp("runs") / "run")


@pytest.fixture(scope="session")
def small_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Full and Target over 3 images."""
    from tests.runs.yes_no import make_run

    return make_run(tmp_path_factory.mktemp("small_runs") / "run", images=3, arms=("full", "target:0.3"))


@pytest.fixture
def small_copy(small_run: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(small_run, tmp_path / "run"))


@pytest.fixture(scope="session")
def edited_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every intervention on 24 images."""
    from tests.runs.yes_no import EDITED, make_run

    return make_run(tmp_path_factory.mktemp("edited_runs") / "run", images=24, arms=EDITED)


@pytest.fixture(scope="session")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """10 arms over two open questions on each of 18 pages."""
    from tests.runs.open_questions import make_open_run

    return make_open_run(tmp_path_factory.mktemp("open_runs") / "run")


def large_run(path: Path, **plan: Any) -> Path:
    """3 arms over 200 probes on 40 images in 7 shards."""
    from benchmarks.large_runs import Plan, write_large_run

    arms = ("full", "target:0.3", "grid:0.3")
    return write_large_run(path, Plan(rows=600, arms=arms, probes_per_image=5, images_per_shard=6, **plan))


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of several shards."""
    return large_run(tmp_path_factory.mktemp("large_runs") / "finished")


@pytest.fixture
def run_copy(finished: Path, tmp_path: Path) -> Path:
    """A copy of it to be changed."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


@pytest.fixture(scope="session")
def report(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    from sightline.report.build import CASES
    from tests.runs.pages import report_on

    return report_on(tmp_path_factory.mktemp("report"), run, cases=CASES)


@pytest.fixture(scope="session")
def edited(edited_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The report on a run with every intervention."""
    from tests.runs.pages import report_on

    return report_on(tmp_path_factory.mktemp("edited"), edited_run, cases=6)


@pytest.fixture(scope="session")
def open_report(open_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Page:
    from sightline.report.build import CASES
    from tests.runs.pages import report_on

    return report_on(tmp_path_factory.mktemp("open_report"), open_run, cases=CASES)


@pytest.fixture(scope="session")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A cost card of each kind, by kind."""
    from tests.runs.cost_cards import make_cards

    return make_cards(tmp_path_factory.mktemp("cards"))
