"""Many prefixes continued side by side say what each says alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import SelectStep, materialise
from sightline.answering.scorers.spoken import Generation
from sightline.arms.arm import parse_arm
from sightline.backbones import load_backbone
from sightline.backbones.base import Backbone
from sightline.backbones.cuts import LayerCuts
from sightline.backbones.decoding import STRIDE, Decoder
from sightline.backbones.execution import use_execution
from sightline.checks.doctor import drawn_image
from sightline.core.prefix import Encoded, Prefix
from tests.conftest import DATA
from tests.unit.backbones.named import SHIPPED
from tests.unit.backbones.test_backbones import PROBE

MOST = 11
QUESTIONS = (
    "What is the total?",
    "Which text stands right of INVOICE, and who wrote it?",
    "Date?",
    "What is the value beside INVOICE in the second line of the form?",
    "Who signed?",
)


def loaded(name: str, attention: str = "sdpa") -> Backbone:
    folder = str(DATA / "tiny" / name)
    return load_backbone(folder, dtype="float32", device="cpu", options=SHIPPED[name], attention=attention)


@pytest.fixture(scope="module", params=SHIPPED)
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return loaded(request.param)


@pytest.fixture(scope="module")
def encoded(backbone: Backbone) -> Encoded:
    needs = parse_arm("fastv:0.5").selector.needs | parse_arm("target:0.4").selector.needs
    return backbone.encode([backbone.preprocess(drawn_image())], needs)[0]


Cuts = LayerCuts | None


def prefixes(backbone: Backbone, encoded: Encoded, arm: str) -> tuple[list[Prefix], list[Cuts], Cuts]:
    """The questions' prefixes, a cutter for each alone, and one for all."""
    asked = [replace(PROBE, id=f"q{i}", question=text) for i, text in enumerate(QUESTIONS)]
    passed = Answerer(backbone, Generation()).over(parse_arm(arm), asked, [encoded] * len(asked))
    made = [passed.prefix(i) for i in range(len(asked))]
    alone = [passed.cutter([i], [made[i]]) for i in range(len(asked))]
    return made, alone, passed.cutter(list(range(len(asked))), made)


@pytest.mark.parametrize("arm", ["full", "target:0.4", "fastv:0.5"])
def test_side_by_side_equals_one_by_one(backbone: Backbone, encoded: Encoded, arm: str) -> None:
    made, alone, together = prefixes(backbone, encoded, arm)
    stops = frozenset({*backbone.stop_ids, backbone.language.generate(made[0], 4, frozenset(), alone[0])[3]})
    made, alone, together = prefixes(backbone, encoded, arm)
    expected = [backbone.language.generate(p, MOST, stops, c) for p, c in zip(made, alone, strict=True)]
    said = Decoder(backbone.language, MOST, stops).launch(made, together).read()
    assert [saying.tokens for saying in said] == expected
    assert any(len(tokens) < MOST for tokens in expected), "one of them shall end early"
    assert len({len(tokens) for tokens in expected}) > 1 or len(expected[0]) < STRIDE
    assert all(saying.spent_ms > 0 for saying in said)


def test_the_loss_is_that_of_the_chosen_tokens(backbone: Backbone, encoded: Encoded) -> None:
    made, _, _ = prefixes(backbone, encoded, "target:0.4")
    (said,) = Decoder(backbone.language, 3, frozenset()).launch(made[:1]).read()
    prompt = backbone.prompt(QUESTIONS[0], PROBE.target_text)
    assert len(said.tokens) == 3
    longer = replace(prompt, shared=(*prompt.tail, *said.tokens))
    asked = replace(PROBE, id="q0", question=QUESTIONS[0])
    selection = SelectStep(backbone)(encoded, prompt, asked, parse_arm("target:0.4")).selection
    prefix = materialise(backbone, encoded, longer, selection, backbone.paper_positions)
    batch = backbone.language.run(backbone.language.collate([prefix]))
    logits = backbone.language.logits(batch.hidden[0, -4:-1])
    nll = torch.nn.functional.cross_entropy(logits, torch.tensor(said.tokens))
    assert said.loss == pytest.approx(nll.item(), abs=1e-4)


def test_one_token_at_most_and_a_stop_token_at_once_are_answers(backbone: Backbone, encoded: Encoded) -> None:
    made, _, _ = prefixes(backbone, encoded, "full")
    first = backbone.language.generate(made[0], 1, frozenset())
    for most, stops, tokens in ((1, frozenset[int](), first), (MOST, frozenset(first), [])):
        (said,) = Decoder(backbone.language, most, stops).launch(made[:1]).read()
        assert said.tokens == tokens
        assert said.loss > 0


@pytest.mark.parametrize("name", SHIPPED)
def test_eager_attention_says_the_same(name: str) -> None:
    dense = loaded(name, "eager")
    image = dense.encode([dense.preprocess(drawn_image())], parse_arm("target:0.4").selector.needs)[0]
    made, _, _ = prefixes(dense, image, "target:0.4")
    expected = [dense.language.generate(prefix, 5, frozenset()) for prefix in made]
    assert [each.tokens for each in Decoder(dense.language, 5, frozenset()).launch(made).read()] == expected


def test_compiled_layers_say_the_same(backbone: Backbone, encoded: Encoded) -> None:
    made, _, _ = prefixes(backbone, encoded, "target:0.4")
    expected = [backbone.language.generate(prefix, 5, frozenset()) for prefix in made[:2]]
    use_execution(backbone.language, "compiled", backend="eager", dynamic=True)
    try:
        said = Decoder(backbone.language, 5, frozenset()).launch(made[:2]).read()
    finally:
        use_execution(backbone.language, "eager")
    assert [saying.tokens for saying in said] == expected
