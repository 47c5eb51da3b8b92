"""Commands that make a model ready for OpenVINO, and the engine's pruner made anew from what it prunes."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from benchmarks.openvino_cdpruner import IN_PLAIN_CODE, Array, Features, Kernel, greedy, in_halves, kept_count
from PIL import Image

from sightline.engines import Question
from sightline.engines.openvino import OpenVINO
from sightline.engines.openvino_folder import export
from sightline.errors import SightlineError
from tests.command_line import sightline

TINY = Path(__file__).parents[2] / "data" / "openvino_tiny"


def told(*words: str) -> str:
    return sightline("engines", *words).output


def test_engines_are_listed_with_their_switches() -> None:
    listed = told("list")
    assert [switch for switch in ("openvino", *OpenVINO.switches) if switch not in listed] == []


def test_the_commands_of_an_export(tmp_path: Path) -> None:
    commands = told("export", "model", "out", "--weights", "fp16", "--env", str(tmp_path)).splitlines()
    assert "torchvision" not in " ".join(commands)
    assert "--no-deps optimum-intel" in commands[-2]
    assert commands[-1].endswith("--model model --task image-text-to-text --weight-format fp16 out")
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "optimum-cli"
    tool.write_text("#!/bin/sh\nexit 3\n")
    tool.chmod(0o755)
    assert len(told("export", "model", "out", "--env", str(tmp_path)).splitlines()) == 1
    with pytest.raises(SightlineError, match=r"exit code 3: .*optimum-cli export openvino"):
        export("model", tmp_path / "out", tmp_path)
    with pytest.raises(SightlineError, match="is not empty"):
        export("model", tmp_path, tmp_path)


def test_the_engines_choice_is_made_anew_token_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IN_PLAIN_CODE.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "tiny"
    shutil.copytree(TINY, folder)
    told("trace", str(folder))
    engine = OpenVINO(str(folder))
    assert engine.facts()["environment"] == IN_PLAIN_CODE
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (192, 256, 3), np.uint8))
    features = Features(engine, engine.facts()["inference_precision"])
    visual, kernel, text = features.visual(image), Kernel("CPU", None), features.text(Question("What is this?"))

    def whole(tokens: Array, k: int) -> list[int]:
        return greedy(kernel(tokens, text), k)

    for ratio in (30, 50, 70):
        k = kept_count(len(visual), ratio)
        for variant, picks in (("paper", whole(visual, k)), ("split", in_halves(whole, visual, k))):
            switches = {"pruning_ratio": str(ratio), "variant": variant}
            heard = engine.ask(Question("What is this?", image, switches=switches, longest=1))
            assert heard.cells == tuple(sorted(picks)), switches
    few = engine.ask(
        Question("What is this?", image.rotate(90, expand=True), switches={"pruning_ratio": "96"}, longest=1)
    )
    assert few.positions == "resume", few.cells
