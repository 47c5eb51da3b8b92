from __future__ import annotations

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
