"""The README's list of selectors is what the registry says."""

from __future__ import annotations

import inspect

from sightline.selectors import SELECTORS
from tests.conftest import REPOSITORY


def selector_lines() -> list[str]:
    return [f"- `{name}`: {(inspect.getdoc(SELECTORS.get(name)) or '').splitlines()[0]}" for name in SELECTORS]


def test_the_readme_has_one_true_line_per_selector() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    listed = [line for line in readme if line.startswith("- `")]
    assert listed == selector_lines()
