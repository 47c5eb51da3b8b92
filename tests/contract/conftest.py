"""The example packages, installed once for all tests that use them as they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.installed import copy_of_example, install

EXAMPLES = ("sightline-example-selector", "sightline-example-plugin")


@pytest.fixture(scope="session")
def example_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of its own beside the rest, with both of them in it."""
    folder = tmp_path_factory.mktemp("examples")
    for name in EXAMPLES:
        install(copy_of_example(name, folder / name), folder / "site")
    return folder / "site"
