"""The real engine over a tiny exported model and a traced copy of it, its pruner made anew, and commands beside it."""

import json
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.openvino_cdpruner import IN_PLAIN_CODE, Array, Features, Kernel, greedy, in_halves, kept_count
from PIL import Image

from sightline.engines import Question, engine_of
from sightline.engines.openvino import THRESHOLD, OpenVINO
from sightline.engines.openvino_folder import export
from sightline.engines.openvino_trace import RECORD, TRACED, NumberCode, Traced, speech_of, trace
from sightline.errors import SightlineError
from tests.command_line import sightline
from tests.refusals import Refused

TINY = Path(__file__).parents[2] / "data" / "openvino_tiny"
TEXT, SYSTEM = "What is the total?", "Answer briefly."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("export") / "tiny"
    shutil.copytree(TINY, copy)
    trace(copy)
    return copy


@pytest.fixture(scope="module")
def engine(folder: Path) -> OpenVINO:
    engine = engine_of(f"openvino:{folder}")
    assert isinstance(engine, OpenVINO)
    assert engine.traces
    engine.load()
    return engine


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 255, (height, width, 3), np.uint8))


def question(image: Image.Image | None = None, *, longest: int = 4, **switches: Any) -> Question:
    return Question(TEXT, image, SYSTEM, switches, longest)


@pytest.mark.parametrize(
    ("size", "grid"),
    [
        ((256, 192), (6, 8)),
        ((80, 112), (4, 3)),  # both sides end in a half: transformers would make 4 x 2 of it
        ((20, 30), (3, 2)),  # fewer pixels than the fewest
        ((1000, 700), (13, 19)),  # more than the most
    ],
)
def test_the_grid_is_what_the_engine_counts(engine: OpenVINO, size: tuple[int, int], grid: tuple[int, int]) -> None:
    heard = engine.ask(question(noise(*size), longest=1))
    found, text = engine.grid(size), engine.text_tokens(question())
    assert found is not None
    assert text is not None
    assert (found.rows, found.columns, found.token_pixels) == (*grid, 1024)
    assert heard.prompt_tokens == text + engine.markers + grid[0] * grid[1]
    assert heard.cells == tuple(range(grid[0] * grid[1]))


@pytest.mark.parametrize(
    ("switches", "kept"),
    [
        ({}, 48),
        ({"pruning_ratio": "0"}, 48),
        ({"pruning_ratio": "30"}, 34),
        ({"pruning_ratio": "50"}, 24),
        ({"pruning_ratio": "70", "relevance_weight": "1"}, 14),
        ({"pruning_ratio": "70", "variant": "paper"}, 14),
        ({"pruning_ratio": "100"}, 48),  # the engine takes it as 0 and says nothing
    ],
)
def test_what_is_kept_is_counted_and_traced(engine: OpenVINO, switches: dict[str, Any], kept: int) -> None:
    image = noise(256, 192)
    heard = engine.ask(question(image, **switches))
    text = engine.text_tokens(question())
    assert text is not None
    assert heard.cells is not None
    assert heard.prompt_tokens == text + 2 + kept
    assert len(heard.cells) == kept
    assert list(heard.cells) == sorted(heard.cells)
    assert set(heard.cells) <= set(range(48))
    assert json.loads(json.dumps(heard.raw)) == heard.raw
    assert replace(engine.ask(question(image, **switches)), ms=heard.ms) == heard
    asked = engine.requested_keep(switches)
    ratio = switches.get("pruning_ratio")
    assert asked == (None if ratio is None else pytest.approx(1 - int(ratio) / 100))


def test_a_variant_is_another_selection_and_leaves_the_environment_alone(
    engine: OpenVINO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(THRESHOLD, "1")
    asked = [question(noise(256, 192), pruning_ratio="50", variant=variant) for variant in ("paper", "split", "paper")]
    paper, split, again = (engine.ask(each).cells for each in asked)
    assert paper is not None
    assert split is not None
    assert paper == again != split
    assert sum(cell < 24 for cell in split) == 12  # as many of either half
    assert os.environ[THRESHOLD] == "1"
    assert engine.ask(question(noise(256, 192), pruning_ratio="50")).cells == split


def test_an_answer_says_what_was_generated(engine: OpenVINO) -> None:
    short = engine.ask(Question(TEXT, noise(64, 64), SYSTEM, longest=1, likely=True))
    long = engine.ask(Question(TEXT, noise(64, 64), SYSTEM, longest=5, likely=True))
    assert (short.tokens, short.cut_off, long.tokens, long.cut_off) == (1, True, 5, True)
    assert short.first == long.first == {short.text: -short.loss if short.loss is not None else None}
    assert long.text.startswith(short.text)
    assert engine.ask(question(None)).cells is None
    assert engine.ask(question(None)).prompt_tokens == engine.text_tokens(question())


def test_the_prompt_is_the_one_of_the_chat_template(engine: OpenVINO) -> None:
    content = [{"type": "image"}, {"type": "text", "text": TEXT}]
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": content}]
    own = engine.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert engine.prompt(question(noise(64, 64))) == own.replace(
        "<|vision_start|><|image_pad|><|vision_end|>", "<ov_genai_image_0>"
    )


def test_facts_are_known_before_loading(folder: Path) -> None:
    facts = OpenVINO(str(folder)).facts()
    assert (facts["model_type"], facts["dtype"], facts["device"]) == ("qwen3_vl", "f16", "CPU")
    assert facts["weight_digest"].startswith("sha256:")
    assert facts["versions"]["openvino-genai"]
    assert str(folder) not in json.dumps(facts)
    assert OpenVINO(f"{folder}#GPU.1").facts()["device"] == "GPU.1"
    assert OpenVINO(str(folder)).model == "openvino:tiny"


SWITCHES = [
    ({"pruning_ratio": "101"}, "pruning_ratio=101: it is a whole number of percent"),
    ({"pruning_ratio": "-1"}, "pruning_ratio=-1: it is a whole number of percent"),
    ({"pruning_ratio": "0.3"}, "pruning_ratio=0.3: it is a whole number of percent"),
    ({"relevance_weight": "1.5"}, "relevance_weight=1.5: it is a number from 0 to 1"),
    ({"relevance_weight": "much"}, "relevance_weight=much: it is a number from 0 to 1"),
    ({"variant": "fast"}, "split or paper"),
    ({"kv_cache_precision": "u2"}, "f32 or bf16 or f16 or u8 or u4"),
    ({"keep": "0.3"}, "has no switch 'keep'"),
]


def test_switches_that_it_does_not_take_and_what_the_engine_refuses_are_one_line(
    engine: OpenVINO, refused: Refused
) -> None:
    for switches, line in SWITCHES:
        refused(line, engine.check, switches)
    with pytest.raises(SightlineError, match=r"did not answer: .*zero tokens"):
        engine.ask(question(noise(64, 64), pruning_ratio="99"))


def test_folders_that_are_no_export_or_a_copy_of_another_are_refused(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    refused("no exported model", OpenVINO, str(tmp_path))
    with pytest.raises(SightlineError, match=r"cannot load .*#GPU.9"):
        OpenVINO(f"{TINY}#GPU.9").load()
    untraced = OpenVINO(str(TINY))
    assert not untraced.traces
    assert "engines trace" in untraced.untold["kept_mask"]
    monkeypatch.setitem(sys.modules, "openvino_genai", None)
    refused("pip install 'sightline[openvino]'", untraced.load)
    copy = tmp_path / TRACED
    shutil.copytree(folder / TRACED, copy)
    refused("another export", speech_of, copy, "sha256:0")
    (copy / RECORD).write_text("[]")
    refused("no traced copy", speech_of, copy, "sha256:0")


@pytest.mark.parametrize(("vocabulary", "positions", "digits"), [(480, 8192, 2), (151936, 262144, 2), (12, 8192, 5)])
def test_positions_larger_than_the_vocabulary_are_spoken_in_digits(
    vocabulary: int, positions: int, digits: int, refused: Refused
) -> None:
    speech = NumberCode.fitting(vocabulary, [2, 5], positions)
    base, numbers = len(speech.letters), [0, 1, 2 * positions, 7]
    assert speech.digits == digits
    assert not {2, 5} & set(speech.letters)
    said = [speech.letters[n // base**place % base] for n in numbers for place in reversed(range(digits))]
    assert speech.numbers([*said, 2, 9]) == numbers
    refused(f"broke off after {len(said)} tokens", speech.numbers, said)
    refused(f"{len(said) - 1} tokens are no whole numbers", speech.numbers, [*said[:-1], 2])
    refused("token 5 is no digit", speech.numbers, [*said, 5, 2])
    short = NumberCode((0, 1, 3), 1, 2)
    refused("1 token and has 3 numbers instead of 4", Traced.heard, [1, 0, 0, 2], short)
    refused("position beyond", Traced.heard, [1, 3, 0, 0, 2], short)


GRID = {cell: (4, 4 + cell // 3, 4 + cell % 3) for cell in range(6)}
"""(t, h, w) of 2 rows of 3 behind four tokens of text."""


@pytest.mark.parametrize(
    ("kept", "after", "policy", "cells"),
    [
        ([GRID[0], GRID[2]], 7, "preserve or resume", (0, 2)),
        ([GRID[0], GRID[4]], 7, "preserve", (0, 4)),
        ([GRID[0], GRID[4]], 6, "resume", (0, 4)),
        ([GRID[4], GRID[0]], 6, "resume", (4, 0)),
        ([GRID[0], GRID[4]], 5, "other", (0, 4)),
        ([(4, 4, 4), (5, 5, 5)], 6, "compact", None),
        ([GRID[0], GRID[0]], 5, "other", None),
    ],
)
def test_how_positions_go_on(
    kept: list[tuple[int, int, int]], after: int, policy: str, cells: tuple[int, ...] | None, refused: Refused
) -> None:
    text = [(i, i, i) for i in range(4)]
    traced = Traced((*[False] * 4, *[True] * len(kept), False), (*text, *kept, (after,) * 3))
    assert traced.policy(2, 3) == policy
    if cells is None:
        refused("cannot be told", traced.cells, 2, 3)
    else:
        assert traced.cells(2, 3) == cells


def told(*words: object) -> str:
    return sightline("engines", *words).output


def test_engines_are_listed_with_their_switches() -> None:
    listed = told("list")
    assert [switch for switch in ("openvino", *OpenVINO.switches) if switch not in listed] == []


def test_an_export_is_told_with_its_commands(tmp_path: Path, refused: Refused) -> None:
    commands = told("export", "model", "out", "--weights", "fp16", "--env", tmp_path).splitlines()
    assert "torchvision" not in " ".join(commands)
    assert "--no-deps optimum-intel" in commands[-2]
    assert commands[-1].endswith("--model model --task image-text-to-text --weight-format fp16 out")
    (tmp_path / "bin").mkdir()
    tool = tmp_path / "bin" / "optimum-cli"
    tool.write_text("#!/bin/sh\nexit 3\n")
    tool.chmod(0o755)
    assert len(told("export", "model", "out", "--env", tmp_path).splitlines()) == 1
    refused("exit code 3", export, "model", tmp_path / "out", tmp_path)
    refused("is not empty", export, "model", tmp_path, tmp_path)


def test_the_engines_choice_is_made_anew_token_by_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in IN_PLAIN_CODE.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "tiny"
    shutil.copytree(TINY, folder)
    sightline("engines", "trace", folder)
    engine = OpenVINO(str(folder))
    assert engine.facts()["environment"] == IN_PLAIN_CODE
    image = noise(256, 192)
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
    upright = image.rotate(90, expand=True)
    few = engine.ask(Question("What is this?", upright, switches={"pruning_ratio": "96"}, longest=1))
    assert few.positions == "resume", few.cells
