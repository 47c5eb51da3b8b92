"""The audited path is the model's own: logits, generation, lengths, positions, branches, batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from sightline.answering.ask import answer, generate
from sightline.answering.materialise import materialise
from sightline.answering.select import SelectStep
from sightline.arms.arm import parse_arm
from sightline.backbones import Backbone, ImageOptions, load_backbone
from sightline.backbones.unmodified import model_logits
from sightline.checks.doctor import QUESTION, drawn_picture, examine, prefix_logits
from sightline.core.prefix import Encoded, PositionPolicy
from sightline.core.probe import Probe
from sightline.core.selection import Selection
from sightline.errors import SightlineError

MODELS = ("qwen3vl", "llava", "internvl")
POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")
PROBE = Probe("p", "x.png", "x", QUESTION, "yes", "INVOICE", "INVOICE", ((0.1, 0.1, 0.2, 0.15),))


@pytest.fixture(scope="module", params=MODELS)
def backbone(request: pytest.FixtureRequest, data: Path) -> Backbone:
    options = ImageOptions(max_pixels=100352, max_tiles=3)
    return load_backbone(str(data / "tiny" / request.param), dtype="float32", device="cpu", options=options)


@pytest.fixture(scope="module")
def encoded(backbone: Backbone) -> Encoded:
    return backbone.encode([backbone.preprocess(drawn_picture())])[0]


def test_keep_one_gives_the_models_own_logits_under_both_policies(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    ids = (*prompt.head, *prompt.tail)
    reference = model_logits(backbone, drawn_picture(), encoded, ids, len(prompt.head))
    for policy in POLICIES:
        everything = Selection(torch.arange(encoded.n))
        ours = prefix_logits(backbone, materialise(backbone, encoded, prompt, everything, policy, branches=False))
        assert (ours - reference).abs().max() <= 1e-4


def test_cells_that_do_not_fit_the_tokens_are_refused(backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> None:
    pixels = backbone.preprocess(drawn_picture())
    cells, layout = backbone.cells_of(pixels)
    monkeypatch.setattr(backbone, "cells_of", lambda _: (cells[:-1], layout))
    with pytest.raises(SightlineError, match=f"{len(cells)} visual tokens but {len(cells) - 1} cells"):
        backbone.encode([pixels])


def test_both_answers_in_one_forward_equal_two_plain_forwards(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    everything = Selection(torch.arange(encoded.n))
    answer_ = backbone.language.score([materialise(backbone, encoded, prompt, everything, "preserve")])[0]
    for branch, loss in ((prompt.yes, answer_.loss_yes), (prompt.no, answer_.loss_no)):
        whole = (*prompt.head, *prompt.shared, *branch)
        logits = model_logits(backbone, drawn_picture(), encoded, whole, len(prompt.head))
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
    pruned = materialise(backbone, encoded, prompt, Selection(kept), "compact", branches=False)
    for axis in pruned.positions[-1:] if backbone.axes == 1 else pruned.positions[1:]:
        used = torch.unique(axis[pruned.start : pruned.start + pruned.k])
        assert torch.equal(used, torch.arange(pruned.start, pruned.start + len(used)))


def test_greedy_generation_equals_the_models_own(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    reply = generate(SelectStep(backbone), encoded, PROBE, parse_arm("full"), max_new_tokens=8)
    sequence = [*prompt.head, *prompt.tail]
    expected: list[int] = []
    while len(expected) < 8:
        logits = model_logits(backbone, drawn_picture(), encoded, (*sequence, *expected), len(prompt.head))
        token = int(logits[-1].argmax())
        if token in backbone.stop_ids:
            break
        expected.append(token)
    assert reply.ids == expected


@pytest.mark.parametrize("arm", ["target:0.3", "fastv:0.5"])
def test_cached_generation_equals_recomputing_every_step(backbone: Backbone, encoded: Encoded, arm: str) -> None:
    """A pruned prefix has no plain forward to compare with, so the cache is compared with no cache at all."""
    step = SelectStep(backbone)
    parsed = parse_arm(arm)
    reply = generate(step, encoded, PROBE, parsed, max_new_tokens=5)
    again = generate(step, encoded, PROBE, parsed, max_new_tokens=5)
    assert reply.ids == again.ids
    assert reply.kept < reply.full
    if parsed.inside:
        return
    prompt = backbone.prompt(PROBE.question, PROBE.target_text)
    selection = step(encoded, prompt, PROBE, parsed).selection
    produced: list[int] = []
    for _ in reply.ids:
        longer = type(prompt)(**{**prompt.__dict__, "tail": (*prompt.tail, *produced)})
        prefix = materialise(backbone, encoded, longer, selection, backbone.paper_positions, branches=False)
        produced.append(int(prefix_logits(backbone, prefix)[-1].argmax()))
    assert reply.ids == produced


def test_rows_alone_and_in_a_padded_batch_agree(backbone: Backbone, encoded: Encoded) -> None:
    prompt = backbone.prompt(QUESTION, "INVOICE")
    prefixes = [
        materialise(backbone, encoded, prompt, Selection(torch.arange(0, encoded.n, stride)), backbone.paper_positions)
        for stride in (1, 2, 7)
    ]
    together = backbone.language.score(prefixes)
    for prefix, batched in zip(prefixes, together, strict=True):
        alone = backbone.language.score([prefix])[0]
        assert alone.loss_yes == pytest.approx(batched.loss_yes, abs=1e-5)
        assert alone.loss_no == pytest.approx(batched.loss_no, abs=1e-5)


def test_doctor_passes_and_says_what_it_checked(data: Path) -> None:
    findings = examine(str(data / "tiny" / "qwen3vl"), device="cpu", max_pixels=100352)
    assert all(finding.passed for finding in findings)
    assert len(findings) == 6


def test_doctor_fails_in_words_when_the_path_differs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sightline.checks.doctor.prefix_logits", lambda backbone, prefix: prefix_logits(backbone, prefix) + 1
    )
    findings = examine(str(data / "tiny" / "llava"), device="cpu")
    failed = [finding for finding in findings if not finding.passed]
    assert len(failed) == 1
    assert "differs from the model's own forward" in failed[0].words


def test_bfloat16_runs_everywhere(data: Path) -> None:
    for model in MODELS:
        backbone = load_backbone(
            str(data / "tiny" / model),
            dtype="bfloat16",
            device="cpu",
            options=ImageOptions(max_pixels=50176, max_tiles=2),
        )
        encoded = backbone.encode([backbone.preprocess(drawn_picture())])[0]
        prefix = materialise(
            backbone,
            encoded,
            backbone.prompt(QUESTION, "INVOICE"),
            Selection(torch.arange(0, encoded.n, 2)),
            "preserve",
        )
        scored = backbone.language.score([prefix])[0]
        assert np.isfinite([scored.loss_yes, scored.loss_no]).all()


def test_llava_cells_cover_the_crop_alone(data: Path) -> None:
    folder = str(data / "tiny" / "llava")
    wide = drawn_picture()
    aware = load_backbone(folder, device="cpu")
    blind = load_backbone(folder, device="cpu", options=ImageOptions(crop_blind=True))
    cells = aware.encode([aware.preprocess(wide)])[0].cells
    assert cells[:, 0].min() == pytest.approx((640 - 448) / 2 / 640, abs=2e-3)
    assert cells[:, 2].max() == pytest.approx(1 - (640 - 448) / 2 / 640, abs=2e-3)
    assert blind.encode([blind.preprocess(wide)])[0].cells[:, 0].min() == 0.0


def test_ask_answers_a_file(data: Path, tmp_path: Path) -> None:
    drawn_picture().save(tmp_path / "page.png")
    reply = answer(
        str(data / "tiny" / "llava"),
        tmp_path / "page.png",
        "What is written?",
        "target:0.2",
        max_new_tokens=3,
        device="cpu",
    )
    assert reply.kept == 116
    assert reply.full == 576
