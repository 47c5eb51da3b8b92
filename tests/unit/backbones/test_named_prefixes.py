"""The general route with declared cells: the model's own logits and words, pruned spans, separators, batches."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import materialise
from sightline.answering.scorers.spoken import Generation
from sightline.arms.arm import parse_arm
from sightline.backbones.base import model_inputs, model_logits
from sightline.backbones.general import General
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy, Selection
from sightline.core.span import KeptSpan
from tests.unit.backbones.named import QUESTION, TARGET, TYPES, general, photograph

POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")
PROBE = Probe("p", "x.png", "x", QUESTION, "yes", TARGET, TARGET, ((0.1, 0.1, 0.3, 0.2),))
YES_NO = ("yes", "no")


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> General:
    return general(zoo(request.param))


@pytest.fixture(scope="module")
def encoded(backbone: General) -> Encoded:
    return backbone.encode([backbone.preprocess(photograph())])[0]


def kept_span(encoded: Encoded, anchors: Tensor) -> KeptSpan | None:
    return None if encoded.separators is None else KeptSpan.of(encoded.separators, anchors, encoded.n)


def prefix_of(
    backbone: General, encoded: Encoded, prompt: Prompt, anchors: Tensor, policy: PositionPolicy = "preserve"
) -> Prefix:
    return materialise(backbone, encoded, prompt, Selection(anchors), policy, kept_span(encoded, anchors))


def test_a_named_architecture_is_no_longer_the_general_one(backbone: General) -> None:
    assert type(backbone) is not General
    assert backbone.title == type(backbone).__name__
    assert type(backbone).cells is not General.cells
    assert backbone.serves("vision.received@-1") is None


@pytest.mark.parametrize("size", [(200, 130), (60, 250), (430, 400)])
def test_keep_one_gives_the_models_own_logits_under_both_policies(backbone: General, size: tuple[int, int]) -> None:
    image = photograph(*size)
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    prompt = backbone.prompt(QUESTION, TARGET)
    theirs = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    for policy in POLICIES:
        ours = backbone.language.prefix_logits(prefix_of(backbone, encoded, prompt, torch.arange(encoded.n), policy))
        assert (ours - theirs).abs().max() <= 1e-4


def test_the_prompt_is_what_the_processor_itself_writes(backbone: General) -> None:
    """Of image and question together, in one call."""
    processor, image = backbone.processor, photograph()
    prompt = backbone.prompt(QUESTION, TARGET)
    text = backbone.processor_text(QUESTION)
    doubled = backbone.tokenizer.bos_token is not None and text.startswith(backbone.tokenizer.bos_token)
    inputs = processor(text=[text], images=[image], return_tensors="pt", add_special_tokens=not doubled)
    ids = (*prompt.head, *backbone.span_ids(image.size), *prompt.tail)
    assert inputs["input_ids"][0].tolist() == list(ids)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prefix_is_shorter_and_its_ids_are_as_stated(
    backbone: General, encoded: Encoded, policy: PositionPolicy
) -> None:
    prompt, anchors = backbone.prompt(QUESTION, TARGET), torch.arange(0, encoded.n, 3)
    whole = prefix_of(backbone, encoded, prompt, torch.arange(encoded.n), policy)
    pruned = prefix_of(backbone, encoded, prompt, anchors, policy)
    assert len(pruned.embeds) < len(whole.embeds)
    assert pruned.k == len(anchors)
    assert pruned.full_length == len(whole.embeds)
    assert backbone.language.prefix_logits(pruned).isfinite().all()
    span = slice(pruned.start, pruned.start + pruned.span)
    kept = kept_span(encoded, anchors)
    slots = anchors if kept is None else kept.slots
    if policy == "preserve":
        assert torch.equal(pruned.positions[:, span], whole.positions[:, pruned.start + slots])
        assert torch.equal(pruned.positions[:, span.stop :], whole.positions[:, whole.start + whole.span :])
    elif backbone.axes == 1:
        assert torch.equal(pruned.positions[0], torch.arange(len(pruned.embeds)))
    torch.testing.assert_close(pruned.embeds[span], whole.embeds[whole.start + slots])


def test_rows_alone_and_in_a_padded_batch_agree(backbone: General, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, TARGET, YES_NO)
    prefixes = [prefix_of(backbone, encoded, prompt, torch.arange(0, encoded.n, stride)) for stride in (1, 2, 5)]
    for prefix, batched in zip(prefixes, backbone.language.score(prefixes), strict=True):
        (alone,) = backbone.language.score([prefix])
        for mine, other in zip(alone, batched, strict=True):
            assert mine.loss == pytest.approx(other.loss, abs=1e-4)


def test_words_are_those_that_the_model_generates(backbone: General, encoded: Encoded) -> None:
    passed = Answerer(backbone, Generation()).over(parse_arm("full"), [PROBE], [encoded])
    prefix = passed.prefix(0)
    ours = backbone.language.generate(prefix, 8, backbone.stop_ids, passed.cutter([0], [prefix]))
    prompt = Generation().prompt(backbone, PROBE)
    inputs = model_inputs(backbone, photograph(), (*prompt.head, *prompt.tail), len(prompt.head))
    with torch.inference_mode():
        complete = backbone.model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
    theirs = complete[0, inputs["input_ids"].shape[1] :].tolist()
    stop = next((place for place, token in enumerate(theirs) if token in backbone.stop_ids), len(theirs))
    assert ours == theirs[:stop]
    assert ours


@pytest.mark.parametrize("name", ["idefics3", "smolvlm", "mistral3"])
def test_a_smaller_image_is_what_the_model_makes_of_it(zoo: Callable[[str], Path], name: str) -> None:
    """When its own processor is asked for as few pixels."""
    backbone, image, arm = general(zoo(name)), photograph(), parse_arm("resize:0.5")
    pixels = backbone.preprocess(image, budget=arm.image_budget)
    (encoded,) = backbone.encode([pixels])
    prompt = backbone.prompt(QUESTION, TARGET)
    smaller = backbone.under(pixels.options)
    theirs = model_logits(smaller, image, (*prompt.head, *prompt.tail), len(prompt.head))
    prefix = prefix_of(smaller, encoded, prompt, torch.arange(encoded.n))
    assert (backbone.language.prefix_logits(prefix) - theirs).abs().max() <= 1e-4
    assert encoded.n < encoded.full_n
    assert prefix.full_length == len(prompt.head) + len(backbone.span_ids(image.size)) + len(prompt.tail)


# ---------------------------------------------------------------------- separators


@pytest.mark.parametrize("name", ["llava_next", "llava_onevision", "mistral3"])
def test_what_ends_a_row_stays_with_it(zoo: Callable[[str], Path], name: str) -> None:
    backbone = general(zoo(name))
    (encoded,) = backbone.encode([backbone.preprocess(photograph())])
    separators = encoded.separators
    assert separators is not None
    *before, (rows, columns) = encoded.layout
    first = sum(high * wide for high, wide in before)
    assert len(separators.slots) == rows
    third = torch.tensor([first + 2 * columns + 1])
    assert separators.staying(third, encoded.n).tolist() == [2] + [rows - 1] * (name == "mistral3")
    everything = torch.arange(encoded.n)
    assert separators.staying(everything, encoded.n).tolist() == list(range(rows))
    if before:
        assert separators.staying(torch.arange(first), encoded.n).tolist() == []


@pytest.mark.parametrize("name", ["idefics3", "smolvlm"])
def test_what_announces_a_tile_stays_with_it(zoo: Callable[[str], Path], name: str) -> None:
    backbone, image = general(zoo(name)), photograph()
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    separators, ids = encoded.separators, torch.tensor(backbone.span_ids(image.size))
    assert separators is not None

    def written(anchors: Tensor) -> str:
        kept = KeptSpan.of(separators, anchors, encoded.n)
        return str(backbone.tokenizer.decode(ids[kept.slots], clean_up_tokenization_spaces=False))

    columns, rows = backbone.tiles(image.size)  # type: ignore[attr-defined]
    assert (columns, rows) == (4, 3)
    fake, token = "<fake_token_around_image>", "<image>"
    assert written(torch.tensor([4, 6])) == f"{fake}<row_1_col_2>{token * 2}{fake}"
    last = encoded.n - 1
    assert written(torch.tensor([last])).endswith(f"{fake}<global-img>{token}{fake}")
    both = written(torch.tensor([0, last]))
    assert both.startswith(f"{fake}<row_1_col_1>{token}")
    assert both.count("col") == 1
    assert written(torch.arange(encoded.n)) == backbone.tokenizer.decode(ids, clean_up_tokenization_spaces=False)
