"""The audited path is the model's own: logits, generation, lengths, positions, branches, batches."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.answering.answerer import Answerer
from sightline.answering.ask import ask
from sightline.answering.materialise import SelectStep, Trace, materialise
from sightline.answering.scorers.spoken import Generation
from sightline.arms.arm import parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.language import LanguageModel
from sightline.checks.doctor import PROBE as DOCTORS_PROBE
from sightline.checks.doctor import drawn_image, examine
from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy, Selection
from sightline.errors import SightlineError
from tests.towered import towered

MODELS: dict[str, dict[str, int]] = {"qwen3vl": {"max_pixels": 100352}, "llava": {}, "internvl": {"max_tiles": 3}}
"""Checkpoints, and image options that keep them quick."""
POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")
QUESTION, YES_NO = DOCTORS_PROBE.question, (" yes", " no")
PROBE = Probe("p", "x.png", "x", QUESTION, "yes", "INVOICE", "INVOICE", ((0.1, 0.1, 0.2, 0.15),))


@pytest.fixture(scope="module", params=MODELS)
def backbone(request: pytest.FixtureRequest, data: Path) -> Backbone:
    folder = str(data / "tiny" / request.param)
    return load_backbone(folder, dtype="float32", device="cpu", options=MODELS[request.param])


@pytest.fixture(scope="module")
def encoded(backbone: Backbone) -> Encoded:
    return backbone.encode([backbone.preprocess(drawn_image())])[0]


def test_keep_one_gives_the_models_own_logits_under_both_policies(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    ids = (*prompt.head, *prompt.tail)
    reference = model_logits(backbone, drawn_image(), ids, len(prompt.head))
    for policy in POLICIES:
        everything = Selection(torch.arange(encoded.n))
        ours = backbone.language.prefix_logits(materialise(backbone, encoded, prompt, everything, policy))
        assert (ours - reference).abs().max() <= 1e-4


def test_cells_that_do_not_fit_the_tokens_are_refused(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = backbone.preprocess(drawn_image())
    cells, layout = towered(backbone).cells_of(pixels)
    monkeypatch.setattr(backbone, "cells_of", lambda _: (cells[:-1], layout))
    with pytest.raises(SightlineError, match=f"{len(cells)} visual tokens but {len(cells) - 1} cells"):
        backbone.encode([pixels])


def test_both_answers_in_one_forward_equal_two_plain_forwards(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE", YES_NO)
    everything = Selection(torch.arange(encoded.n))
    answer_ = backbone.language.score([materialise(backbone, encoded, prompt, everything, "preserve")])[0]
    assert len(answer_) == 2
    for branch, (loss, _) in zip(prompt.continuations, answer_, strict=True):
        whole = (*prompt.head, *prompt.shared, *branch)
        logits = model_logits(backbone, drawn_image(), whole, len(prompt.head))
        scored = (*prompt.shared, *branch)[len(prompt.tail) :]
        rows = logits[len(logits) - len(scored) - 1 : -1]
        expected = torch.nn.functional.cross_entropy(rows.float(), torch.tensor(scored))
        assert loss == pytest.approx(float(expected), abs=1e-4)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prefix_is_really_shorter_and_ordered(
    backbone: Backbone, encoded: Encoded, policy: PositionPolicy
) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    kept = torch.arange(1, encoded.n, 4)
    prefix = materialise(backbone, encoded, prompt, Selection(kept), policy)
    assert prefix.k == len(kept)
    assert len(prefix.embeds) == prompt.length(len(kept))
    assert prefix.full_length - prefix.prompt_length == encoded.n - len(kept)
    assert all(len(level) == len(kept) for level in prefix.deepstack)
    assert len(prefix.deepstack) == len(encoded.deepstack)
    torch.testing.assert_close(prefix.embeds[prefix.start : prefix.start + prefix.k], encoded.tokens[kept])
    text = prefix.positions[:, prefix.start + prefix.k : prefix.prompt_length]
    assert (text == text[:1]).all(), "text ids are equal on all axes"
    assert (text[0].diff() == 1).all()
    assert int(text.min()) > int(prefix.positions[:, : prefix.start + prefix.k].max())


def test_preserved_ids_are_those_of_the_full_prefix(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    kept = torch.arange(0, encoded.n, 5)
    whole = materialise(backbone, encoded, prompt, Selection(torch.arange(encoded.n)), "preserve")
    pruned = materialise(backbone, encoded, prompt, Selection(kept), "preserve")
    start = whole.start
    assert torch.equal(pruned.positions[:, start : start + len(kept)], whole.positions[:, start + kept])
    assert torch.equal(pruned.positions[:, start + len(kept) :], whole.positions[:, start + encoded.n :])


def test_compact_ids_leave_no_gap(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    kept = torch.arange(0, encoded.n, 3)
    pruned = materialise(backbone, encoded, prompt, Selection(kept), "compact")
    for axis in pruned.positions[-1:] if backbone.axes == 1 else pruned.positions[1:]:
        used = torch.unique(axis[pruned.start : pruned.start + pruned.k])
        assert torch.equal(used, torch.arange(pruned.start, pruned.start + len(used)))


def test_greedy_generation_equals_the_models_own(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    ids, _ = greedy(backbone, encoded, "full", 8)
    sequence = [*prompt.head, *prompt.tail]
    expected: list[int] = []
    while len(expected) < 8:
        logits = model_logits(backbone, drawn_image(), (*sequence, *expected), len(prompt.head))
        token = int(logits[-1].argmax())
        if token in backbone.stop_ids:
            break
        expected.append(token)
    assert ids == expected


@pytest.mark.parametrize("arm", ["target:0.3", "fastv:0.5"])
def test_cached_generation_equals_recomputing_every_step(backbone: Backbone, encoded: Encoded, arm: str) -> None:
    """A pruned prefix has no plain forward to compare with, so the cache is compared with no cache at all."""
    parsed = parse_arm(arm)
    ids, trace = greedy(backbone, encoded, arm, 5)
    assert ids == greedy(backbone, encoded, arm, 5)[0]
    assert trace.k < encoded.n
    if parsed.inside:
        return
    prompt = backbone.prompt(PROBE.question, PROBE.target_text)
    selection = SelectStep(backbone)(encoded, prompt, PROBE, parsed).selection
    produced: list[int] = []
    for _ in ids:
        longer = replace(prompt, shared=(*prompt.tail, *produced))
        prefix = materialise(backbone, encoded, longer, selection, backbone.paper_positions)
        produced.append(int(backbone.language.prefix_logits(prefix)[-1].argmax()))
    assert ids == produced


def greedy(backbone: Backbone, encoded: Encoded, arm: str, count: int) -> tuple[list[int], Trace]:
    passed = Answerer(backbone, Generation()).over(parse_arm(arm), [PROBE], [encoded])
    prefix = passed.prefix(0)
    ids = backbone.language.generate(prefix, count, backbone.stop_ids, passed.cutter([0], [prefix]))
    return ids, passed.traces()[0]


def test_an_answer_is_scored_with_the_continuations_it_was_asked_for(backbone: Backbone, encoded: Encoded) -> None:
    """The same question with other answers is another prompt, whichever was tokenised first."""
    first = backbone.prompt(QUESTION, "INVOICE", YES_NO)
    other = backbone.prompt(QUESTION, "INVOICE", (" no", " yes", " maybe"))
    assert first.scored == (other.scored[1], other.scored[0])
    assert len(other.scored) == 3
    (three,) = backbone.language.score([_everything(backbone, encoded, other)])
    (two,) = backbone.language.score([_everything(backbone, encoded, first)])
    assert two[0].loss == pytest.approx(three[1].loss, abs=1e-5)
    assert two[1].loss == pytest.approx(three[0].loss, abs=1e-5)
    (alone,) = backbone.language.score([_everything(backbone, encoded, backbone.prompt(QUESTION, "", (" maybe",)))])
    assert alone[0].loss == pytest.approx(three[2].loss, abs=1e-5)


def _everything(backbone: Backbone, encoded: Encoded, prompt: Prompt) -> Prefix:
    return materialise(backbone, encoded, prompt, Selection(torch.arange(encoded.n)), "preserve")


def test_rows_alone_and_in_a_padded_batch_agree(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE", YES_NO)
    prefixes = [
        materialise(backbone, encoded, prompt, Selection(torch.arange(0, encoded.n, stride)), backbone.paper_positions)
        for stride in (1, 2, 7)
    ]
    together = backbone.language.score(prefixes)
    for prefix, batched in zip(prefixes, together, strict=True):
        alone = backbone.language.score([prefix])[0]
        for mine, other in zip(alone, batched, strict=True):
            assert mine.loss == pytest.approx(other.loss, abs=1e-5)


def test_doctor_passes_and_says_what_it_checked(data: Path) -> None:
    findings = examine(str(data / "tiny" / "qwen3vl"), device="cpu", image_options={"max_pixels": 100352})
    assert all(finding.passed for finding in findings)
    assert [finding.name for finding in findings] == [
        "cell_count",
        "cells_by_ramps",
        "bright_word",
        "own_logits",
        "positions_unpruned",
        "positions_pruned",
        "shorter_prefix",
        "language_batches",
        "image_batches",
        "answer_lengths",
        "methods",
    ]


def test_doctor_fails_in_words_when_the_path_differs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logits = LanguageModel.prefix_logits
    monkeypatch.setattr(LanguageModel, "prefix_logits", lambda language, prefix: logits(language, prefix) + 1)
    findings = examine(str(data / "tiny" / "llava"), device="cpu")
    failed = [finding for finding in findings if not finding.passed]
    assert len(failed) == 1
    assert "differs from the model's own forward" in failed[0].words


def test_bfloat16_runs_everywhere(data: Path) -> None:
    for model, options in MODELS.items():
        backbone = load_backbone(str(data / "tiny" / model), dtype="bfloat16", device="cpu", options=options)
        encoded = backbone.encode([backbone.preprocess(drawn_image())])[0]
        prefix = materialise(
            backbone,
            encoded,
            backbone.prompt(QUESTION, "INVOICE", YES_NO),
            Selection(torch.arange(0, encoded.n, 2)),
            "preserve",
        )
        scored = backbone.language.score([prefix])[0]
        assert np.isfinite([each.loss for each in scored]).all()


def test_llava_cells_cover_the_crop_alone(data: Path) -> None:
    folder = str(data / "tiny" / "llava")
    wide = drawn_image()
    aware = load_backbone(folder, device="cpu")
    blind = load_backbone(folder, device="cpu", options={"crop_blind": True})
    cells = aware.encode([aware.preprocess(wide)])[0].cells
    assert cells[:, 0].min() == pytest.approx((640 - 448) / 2 / 640, abs=2e-3)
    assert cells[:, 2].max() == pytest.approx(1 - (640 - 448) / 2 / 640, abs=2e-3)
    assert blind.encode([blind.preprocess(wide)])[0].cells[:, 0].min() == 0.0


def test_ask_answers_a_file(data: Path, tmp_path: Path) -> None:
    drawn_image().save(tmp_path / "page.png")
    reply = ask(
        str(data / "tiny" / "llava"),
        tmp_path / "page.png",
        "What is written?",
        "target:0.2",
        max_new_tokens=3,
        device="cpu",
    )
    assert reply.kept == 116
    assert reply.full == 576
