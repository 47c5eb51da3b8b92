"""What tests of the paper's tables share: a study of tiny models."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

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
