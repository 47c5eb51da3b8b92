"""Every case in the golden folder, through the selector that claims parity with it."""

from __future__ import annotations

from collections.abc import Callable

from tests.golden.harness import Case, answer_to, check


def test_golden_case(golden_case: Case, record_property: Callable[[str, object], None]) -> None:
    record_property("golden", golden_case.file)
    check(golden_case, answer_to(golden_case))
