"""What tests of the paper's tables share: a study of tiny models, and data as their publishers ship them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lab.stand_ins import StandIns, write_stand_ins
from sightline_paper import Study, StudyOptions

Pilot = Callable[..., Study]


@pytest.fixture
def pilot(data: Path, tmp_path: Path) -> Pilot:
    """A study of the tiny models on a few images of the mini set, by the way that TextOCR itself goes."""

    def make(**options: Any) -> Study:
        models = {"qwen": str(data / "tiny/qwen3vl"), "llava": str(data / "tiny/llava")}
        run = {"device": "cpu", "dtype": "float32", "image_options": {}}
        settings = {"limit": 4, "draws": 200, "clip": str(data / "tiny/clip"), "run": run, **options}
        return Study(tmp_path / "study", models, data / "mini_textocr", StudyOptions(**settings))

    return make


@pytest.fixture(scope="session")
def published(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """Files of open questions as their publishers ship them."""
    return write_stand_ins(tmp_path_factory.mktemp("published"))
