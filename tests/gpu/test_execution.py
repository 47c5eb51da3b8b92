"""On a GPU: compiled and captured layers give the eager answers, and a captured graph can be replayed in any order."""

from __future__ import annotations

import pytest
import torch

from sightline.answering.materialise import materialise
from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones.execution import CapturedVision, Execution, use_execution, use_vision_execution
from sightline.core.prefix import Prefix
from sightline.core.selection import Selection
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from tests.towered import towered

TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")


@pytest.fixture(scope="module", params=TINY)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("prefill", config=request.param, device="cuda", dtype="float32"))


@pytest.fixture(scope="module")
def prefixes(subject: Subject) -> list[Prefix]:
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    chosen = [torch.arange(0, encoded.n, step, device="cuda") for step in (1, 2, 3, 5)]
    prompt = YesNo().prompt(subject.backbone, subject.probe(0))
    return [materialise(subject.backbone, encoded, prompt, Selection(anchors), "preserve") for anchors in chosen]


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_mode_changes_no_answer(subject: Subject, prefixes: list[Prefix], mode: str) -> None:
    language = subject.backbone.language
    use_execution(language, "eager")
    expected = language.score(prefixes)
    use_execution(language, mode, dynamic=True)  # as an audit does: one code for all lengths
    together = language.score(prefixes)
    forwards = [language.score([prefix])[0] for prefix in prefixes]
    backwards = [language.score([prefix])[0] for prefix in prefixes[::-1]][::-1]
    use_execution(language, "eager")
    for answers in (together, forwards, backwards):
        for ours, plain in zip(answers, expected, strict=True):
            for mine, other in zip(ours, plain, strict=True):
                assert mine.loss == pytest.approx(other.loss, abs=2e-3)
    assert [a[0].loss for a in forwards] == [a[0].loss for a in backwards]


def test_the_vision_tower_gives_the_same_tokens(subject: Subject) -> None:
    backbone = subject.backbone
    pixels = [backbone.preprocess(subject.image(i)) for i in range(2)]
    expected = [backbone.encode([item])[0] for item in pixels]
    use_vision_execution(backbone, Execution("graph"), dynamic=False)
    compiled = backbone.encode(pixels)
    see = CapturedVision(towered(backbone), pixels[0], frozenset())
    for index, (item, plain) in enumerate(zip(pixels, expected, strict=True)):
        for ours in (compiled[index], see(item)):
            assert torch.allclose(ours.tokens, plain.tokens, atol=1e-3)
            for level, same in zip(ours.deepstack, plain.deepstack, strict=True):
                assert torch.allclose(level, same, atol=1e-3)
    use_vision_execution(backbone, Execution("eager"))
