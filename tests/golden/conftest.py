from __future__ import annotations

import collections
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.golden.harness import read_cases

RAN: collections.Counter[str] = collections.Counter()


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    outcome = yield
    report = outcome.get_result()
    case = getattr(item, "callspec", None) and item.callspec.params.get("golden_case")  # type: ignore[attr-defined]
    if case is not None and report.when == "call":
        report.user_properties.append(("golden", case.file))


def pytest_terminal_summary(terminalreporter) -> None:  # type: ignore[no-untyped-def]
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, method in getattr(report, "user_properties", []):
                if key == "golden":
                    counts[method][outcome] += 1
    if counts:
        terminalreporter.section("golden cases per method")
        for method in sorted(counts):
            passed, failed = counts[method]["passed"], counts[method]["failed"]
            terminalreporter.write_line(f"{method:24} {passed + failed:4} ran, {passed:4} passed, {failed:4} failed")
