"""The README's list of selectors, and how many of them others published, is what the registry says."""

from __future__ import annotations

import inspect
import re

from sightline.selectors import SELECTORS
from tests.conftest import REPOSITORY


def selector_lines() -> list[str]:
    return [f"- `{name}`: {(inspect.getdoc(SELECTORS.get(name)) or '').splitlines()[0]}" for name in SELECTORS]


def test_the_readme_has_one_true_line_per_selector() -> None:
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8").splitlines()
    listed = [line for line in readme if line.startswith("- `")]
    assert listed == selector_lines()


def test_other_peoples_methods_are_counted_apart_from_the_audits_own_and_from_controls() -> None:
    for name in ("scope", "coin", "fastv", "visionzip_qwen"):
        assert SELECTORS.get(name).published_by_others(), name
    for name in ("full", "random", "target", "spatial_aware", "evidence_only", "resize", "masks"):
        assert not SELECTORS.get(name).published_by_others(), name
    published = [name for name, kind in SELECTORS.items() if kind.published_by_others()]
    assert len(published) == 34
    for page in ("README.md", "docs/methods.md", "docs/selectors.md"):
        text = " ".join((REPOSITORY / page).read_text(encoding="utf-8").split())
        counts = re.findall(r"(\d+) of the (\d+) selectors are methods that others published", text)
        assert counts == [(str(len(published)), str(len(SELECTORS.names())))], page
