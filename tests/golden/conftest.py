from __future__ import annotations

import pytest

from tests.conftest import golden_dir
from tests.golden.harness import read_cases


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden_case" not in metafunc.fixturenames:
        return
    folder = golden_dir(metafunc.config, "golden")
    cases = [case for path in sorted(folder.glob("*.npz")) for case in read_cases(path)]
    if cases:
        metafunc.parametrize("golden_case", cases, ids=lambda case: f"{case.file}-{case.id}-{case.name}")
    else:
        reason = f"no golden cases in {folder}: pass --golden-dir DIR"
        metafunc.parametrize("golden_case", [pytest.param(None, marks=pytest.mark.skip(reason=reason))])
