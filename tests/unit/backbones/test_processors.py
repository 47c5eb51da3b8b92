"""Processors put together from their parts: which class, which parts, and nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from transformers import AutoConfig

from sightline.backbones.checkpoints import Absent, processor_of, stood_in
from sightline.errors import SightlineError
from tests.zoo import build

ABSENT = "a_package_that_nobody_has"


@pytest.fixture
def module_that_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "asks_for_it.py").write_text(
        f"from {ABSENT}.deep.below import thing\nimport {ABSENT}\n"
        f"default = {ABSENT}.Mode.NEAREST\ndef two(): return 2\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "asks_for_it"


def test_a_file_that_asks_for_a_missing_package_is_imported_and_forgotten(module_that_asks: str) -> None:
    with stood_in(ABSENT):
        module = importlib.import_module(module_that_asks)
    assert module.two() == 2
    assert not [name for name in sys.modules if name.startswith((ABSENT, module_that_asks))]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(module_that_asks)


def test_a_package_that_is_there_is_not_stood_in() -> None:
    with stood_in("json"):
        assert sys.modules["json"] is json


def test_a_processor_has_the_checkpoints_own_class_and_settings(tmp_path: Path) -> None:
    folder = build("smolvlm", tmp_path / "smolvlm")
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "SmolVLMProcessor"
    assert type(processor.image_processor).__name__ == "SmolVLMImageProcessorPil"
    assert isinstance(processor.video_processor, Absent)
    assert processor.image_seq_len == 4
    assert processor.chat_template == (folder / "chat_template.jinja").read_text(encoding="utf-8")
    if importlib.util.find_spec("num2words") is None:
        from transformers.models.smolvlm import processing_smolvlm

        assert processing_smolvlm.num2words is None


def test_the_class_of_a_type_is_found_where_the_checkpoint_names_none(tmp_path: Path) -> None:
    folder = build("mistral3", tmp_path / "mistral3")
    for name in ("processor_config.json", "preprocessor_config.json", "tokenizer_config.json"):
        content = json.loads((folder / name).read_text())
        content.pop("processor_class")
        content.pop("image_processor_type", None)
        (folder / name).write_text(json.dumps(content))
    processor = processor_of(folder, AutoConfig.from_pretrained(folder))
    assert type(processor).__name__ == "PixtralProcessor"
    assert type(processor.image_processor).__name__ == "PixtralImageProcessorPil"


def test_a_class_that_transformers_does_not_have_is_named(tmp_path: Path) -> None:
    folder = build("qwen2_vl", tmp_path / "odd")
    file = folder / "processor_config.json"
    file.write_text(json.dumps({"processor_class": "OddProcessor"}))
    with pytest.raises(SightlineError, match="odd: OddProcessor cannot be imported: transformers does not have it"):
        processor_of(folder, AutoConfig.from_pretrained(folder))
