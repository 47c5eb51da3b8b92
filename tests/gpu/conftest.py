"""These tests need a GPU and are skipped where there is none. They print their tables: run them with ``-s``."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from sightline.cost.card import CostCard

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device: there is none here"))


@contextmanager
def forbidden_to_wait() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.fixture
def show(capsys: pytest.CaptureFixture[str]) -> object:
    """Prints a cost card past pytest's capture."""

    def printed(card: CostCard) -> None:
        with capsys.disabled():
            print(f"\n{card.markdown()}")

    return printed
