from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.golden.harness import read_cases


def golden_dir(config: pytest.Config) -> Path:
    chosen = config.getoption("--golden-dir")
    return Path(chosen) if chosen else SHARED / "golden"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_case" not in metafunc.fixturenames:
        return
    folder = golden_dir(metafunc.config)
    cases = [case for path in sorted(folder.glob("*.npz")) for case in read_cases(path)]
    if cases:
        metafunc.parametrize("golden_case", cases, ids=lambda case: f"{case.file}-{case.id}-{case.name}")
    else:
        reason = f"no golden cases in {folder}: pass --golden-dir DIR"
        metafunc.parametrize("golden_case", [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
