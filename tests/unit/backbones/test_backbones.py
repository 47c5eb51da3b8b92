"""The audited path is the model's own, on every architecture: logits, words, lengths, positions, branches, batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import SelectStep, Trace, materialise
from sightline.answering.scorers.spoken import Generation
from sightline.arms.arm import parse_arm
from sightline.backbones import BACKBONES, Backbone, load_backbone
from sightline.backbones.base import model_inputs, model_logits
from sightline.backbones.general import General
from sightline.backbones.qwen2_vl import NativeResolution
from sightline.checks.doctor import drawn_image
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy
from tests.answers import score_arm
from tests.refusals import Refused
from tests.towered import towered
from tests.unit.backbones.named import (
    ARCHITECTURES,
    POLICIES,
    QUESTION,
    SECOND_FORM,
    SHIPPED,
    TARGET,
    TYPES,
    Zoo,
    architecture,
    kept_span,
    photograph,
    prefix_of,
)

YES_NO = (" yes", " no")
PROBE = Probe("p", "x.png", "x", QUESTION, "yes", TARGET, TARGET, ((0.1, 0.1, 0.2, 0.15),))
SIZES = [(200, 130), (60, 250), (430, 400)]
BOTH_WAYS = ("gemma3", "paligemma")
"""Read by the model's own decoder; test_both_ways.py says what they see."""
SHARING = [name for name in TYPES if issubclass(BACKBONES.get(name), NativeResolution)]
"""Whose tokens share the resized image among them, as those of InternVL do, the thumbnail's left out."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def backbone(request: pytest.FixtureRequest, zoo: Zoo) -> Backbone:
    return architecture(request.param, zoo)


@pytest.fixture(scope="module", params=[f"shipped-{name}" for name in SHIPPED])
def shipped(request: pytest.FixtureRequest, zoo: Zoo) -> Backbone:
    return architecture(request.param, zoo)


@pytest.fixture(scope="module")
def encoded(backbone: Backbone) -> Encoded:
    return backbone.encode([backbone.preprocess(photograph())])[0]


@pytest.fixture(scope="module")
def page(shipped: Backbone) -> Encoded:
    return shipped.encode([shipped.preprocess(drawn_image())])[0]


def test_each_has_a_class_of_its_own_and_our_loop_runs_its_layers_where_it_can(backbone: Backbone) -> None:
    assert type(backbone) is not General
    assert backbone.title == type(backbone).__name__
    assert backbone.language.plain == (backbone.model.config.model_type not in BOTH_WAYS)
    if isinstance(backbone, General):
        assert type(backbone).cells is not General.cells
    assert backbone.serves("vision.received@-1") is None


@pytest.mark.parametrize("backbone", ["shipped-internvl", SECOND_FORM, *SHARING], indirect=True)
def test_tokens_share_the_resized_image_among_them_so_that_rows_have_legibility(
    backbone: Backbone, encoded: Encoded
) -> None:
    assert encoded.sampling is not None
    width, height = backbone.shown_size((200, 130))
    tiles = [rows * columns for rows, columns in encoded.layout]
    whole = sum(tiles[:-1]) if len(tiles) > 1 else tiles[0]
    assert encoded.sampling.token_pixels * whole == width * height


@pytest.mark.parametrize("size", SIZES)
def test_keep_one_gives_the_models_own_logits_under_both_policies(backbone: Backbone, size: tuple[int, int]) -> None:
    image = photograph(*size)
    (encoded,) = backbone.encode([backbone.preprocess(image)])
    prompt = backbone.prompt(QUESTION, TARGET)
    theirs = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    for policy in POLICIES:
        ours = backbone.language.prefix_logits(prefix_of(backbone, encoded, prompt, torch.arange(encoded.n), policy))
        assert (ours - theirs).abs().max() <= 1e-4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prefix_is_shorter_and_its_ids_are_as_stated(
    backbone: Backbone, encoded: Encoded, policy: PositionPolicy
) -> None:
    """Kept are all columns but the first of every other row of the first grid."""
    rows, columns = encoded.layout[0]
    anchors = torch.tensor([row * columns + column for row in range(0, rows, 2) for column in range(1, columns)])
    prompt = backbone.prompt(QUESTION, TARGET)
    whole = prefix_of(backbone, encoded, prompt, torch.arange(encoded.n), policy)
    pruned = prefix_of(backbone, encoded, prompt, anchors, policy)
    kept = kept_span(encoded, anchors)
    slots = anchors if kept is None else kept.slots
    assert pruned.k == len(anchors) < encoded.n
    assert pruned.full_length == len(whole.embeds)
    assert len(pruned.embeds) == pruned.prompt_length == prompt.length(len(slots))
    assert len(pruned.deepstack) == len(encoded.deepstack)
    assert all(len(level) == len(slots) for level in pruned.deepstack)
    assert backbone.language.prefix_logits(pruned).isfinite().all()
    start, end = pruned.start, pruned.start + pruned.span
    torch.testing.assert_close(pruned.embeds[start:end], whole.embeds[start + slots])
    text = pruned.positions[:, end:]
    assert (text == text[:1]).all(), "text ids are equal on all axes"
    assert (text[0].diff() == 1).all()
    assert int(text.min()) > int(pruned.positions[:, :end].max())
    if policy == "preserve":
        assert torch.equal(pruned.positions[:, start:end], whole.positions[:, start + slots])
        assert torch.equal(text, whole.positions[:, whole.start + whole.span :])
    elif backbone.axes == 1:
        assert torch.equal(pruned.positions[0], torch.arange(len(pruned.embeds)))
    else:
        row, column = anchors // columns // 2, anchors % columns - 1
        assert torch.equal(pruned.positions[:, start:end] - start, torch.stack([torch.zeros_like(row), row, column]))
        assert (text[:, 0] - start == max((rows + 1) // 2, columns - 1)).all()


def test_both_answers_in_one_forward_alone_and_in_a_padded_batch_are_two_plain_forwards(
    backbone: Backbone, encoded: Encoded
) -> None:
    prompt = backbone.prompt(QUESTION, TARGET, YES_NO)
    prefixes = [prefix_of(backbone, encoded, prompt, torch.arange(0, encoded.n, stride)) for stride in (1, 2, 7)]
    alone = [backbone.language.score([prefix])[0] for prefix in prefixes]
    near = 1e-4 if isinstance(backbone, General) else 1e-5
    for scores, batched in zip(alone, backbone.language.score(prefixes), strict=True):
        assert [mine.loss for mine in scores] == pytest.approx([other.loss for other in batched], abs=near)
    assert len(alone[0]) == 2
    for branch, (loss, _) in zip(prompt.continuations, alone[0], strict=True):
        if not backbone.language.plain:
            continue  # test_both_ways.py compares its answers with the model's
        logits = model_logits(backbone, photograph(), (*prompt.head, *prompt.shared, *branch), len(prompt.head))
        scored = (*prompt.shared, *branch)[len(prompt.tail) :]
        expected = cross_entropy(logits[len(logits) - len(scored) - 1 : -1].float(), torch.tensor(scored))
        assert loss == pytest.approx(float(expected), abs=1e-4)


def test_of_images_of_several_sizes_each_is_answered_as_alone(backbone: Backbone, encoded: Encoded) -> None:
    step, other = SelectStep(backbone), backbone.encode([backbone.preprocess(photograph(90, 170))])[0]
    images, probes = [encoded, other, other, encoded], [replace(PROBE, id=name) for name in "abcd"]
    for text in ("full", "random:0.3", "divprune:0.5"):
        arm = parse_arm(text)
        together = score_arm(step, arm, probes, images, "preserve", 16384)
        for asked, image, scored in zip(probes, images, together, strict=True):
            (alone,) = score_arm(step, arm, [asked], [image], "preserve", 16384)
            assert np.array_equal(alone.anchors, scored.anchors)
            losses = (scored.answer.loss_yes, scored.answer.loss_no)
            assert (alone.answer.loss_yes, alone.answer.loss_no) == pytest.approx(losses, abs=1e-4)


def test_words_are_those_that_the_model_generates(backbone: Backbone, encoded: Encoded) -> None:
    ours, _ = greedy(backbone, encoded, "full", 8)
    prompt = Generation().prompt(backbone, PROBE)
    inputs = model_inputs(backbone, photograph(), (*prompt.head, *prompt.tail), len(prompt.head))
    with torch.inference_mode():
        complete = backbone.model.generate(**inputs, max_new_tokens=8, do_sample=False, num_beams=1)
    theirs = complete[0, inputs["input_ids"].shape[1] :].tolist()
    stop = next((place for place, token in enumerate(theirs) if token in backbone.stop_ids), len(theirs))
    assert ours == theirs[:stop]
    assert ours


def greedy(backbone: Backbone, encoded: Encoded, arm: str, count: int) -> tuple[list[int], Trace]:
    passed = Answerer(backbone, Generation()).over(parse_arm(arm), [PROBE], [encoded])
    prefix = passed.prefix(0)
    ids = backbone.language.generate(prefix, count, backbone.stop_ids, passed.cutter([0], [prefix]))
    return ids, passed.traces()[0]


# Checkpoints of tests/data, on a page.


def test_cached_generation_equals_recomputing_every_step(shipped: Backbone, page: Encoded) -> None:
    """A pruned prefix has no plain forward to compare with, so the cache is compared with no cache at all."""
    for arm in ("fastv:0.5", "target:0.3"):
        ids, trace = greedy(shipped, page, arm, 5)
        assert ids == greedy(shipped, page, arm, 5)[0]
        assert trace.k < page.n
    prompt = shipped.prompt(PROBE.question, PROBE.target_text)
    selection = SelectStep(shipped)(page, prompt, PROBE, parse_arm("target:0.3")).selection
    produced: list[int] = []
    for _ in ids:
        longer = replace(prompt, shared=(*prompt.tail, *produced))
        prefix = materialise(shipped, page, longer, selection, shipped.paper_positions)
        produced.append(int(shipped.language.prefix_logits(prefix)[-1].argmax()))
    assert ids == produced


def test_an_answer_is_scored_with_the_continuations_it_was_asked_for(shipped: Backbone, page: Encoded) -> None:
    """The same question with other answers is another prompt, whichever was tokenised first."""
    asked = (YES_NO, (" no", " yes", " maybe"), (" maybe",))
    first, other, alone = (shipped.prompt(QUESTION, "INVOICE", answers) for answers in asked)
    assert first.scored == (other.scored[1], other.scored[0])
    assert len(other.scored) == 3
    two, three, one = (
        shipped.language.score([prefix_of(shipped, page, prompt, torch.arange(page.n))])[0]
        for prompt in (first, other, alone)
    )
    assert [score.loss for score in (*two, *one)] == pytest.approx([three[i].loss for i in (1, 0, 2)], abs=1e-5)


def test_cells_that_do_not_fit_the_tokens_are_refused(
    shipped: Backbone, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    pixels = shipped.preprocess(drawn_image())
    cells, layout = towered(shipped).cells_of(pixels)
    monkeypatch.setattr(shipped, "cells_of", lambda _: (cells[:-1], layout))
    refused(f"{len(cells)} visual tokens but {len(cells) - 1} cells", shipped.encode, [pixels])


@pytest.mark.parametrize("name", SHIPPED)
def test_scores_in_half_precision_are_numbers(zoo: Zoo, name: str) -> None:
    backbone = architecture(f"shipped-{name}", zoo, dtype="bfloat16")
    (encoded,) = backbone.encode([backbone.preprocess(drawn_image())])
    prompt = backbone.prompt(QUESTION, TARGET, YES_NO)
    (scored,) = backbone.language.score([prefix_of(backbone, encoded, prompt, torch.arange(0, encoded.n, 2))])
    assert np.isfinite([each.loss for each in scored]).all()


def test_llava_cells_cover_the_crop_alone(data: Path) -> None:
    folder = str(data / "tiny" / "llava")
    aware, blind = (
        load_backbone(folder, device="cpu", options={"crop_blind": crop_blind}) for crop_blind in (False, True)
    )
    cells, all_of_it = (each.encode([each.preprocess(drawn_image())])[0].cells for each in (aware, blind))
    assert cells[:, 0].min() == pytest.approx((640 - 448) / 2 / 640, abs=2e-3)
    assert cells[:, 2].max() == pytest.approx(1 - (640 - 448) / 2 / 640, abs=2e-3)
    assert all_of_it[:, 0].min() == 0.0
