from __future__ import annotations

import collections
from pathlib import Path

import pytest
import torch

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        default=None,
        help="folder with golden cases (default: ../shared/golden, or ../shared/golden_e2e for tests/golden_e2e)",
    )


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    # Two test workers on two cores: one thread each is faster than two that fight, and results do not depend on it.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with tiny checkpoints and data sets that lies beside a checkout."""
    if not SHARED.is_dir():
        pytest.skip("no ../shared folder beside this checkout: nothing to test against")
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many golden cases ran per method, so that a missing file or a silent skip shows."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, method in getattr(report, "user_properties", []):
                if key == "golden":
                    counts[str(method)][outcome] += 1
    if counts:
        terminalreporter.section("golden cases per method")
        for method in sorted(counts):
            line = ", ".join(f"{counts[method][outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
            terminalreporter.write_line(f"{method:40} {line}")
