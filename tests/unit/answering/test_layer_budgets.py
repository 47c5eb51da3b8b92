"""Budgets that are a mean over the language layers: rows, masks and costs of methods that leave few tokens, or none."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch

from sightline import SELECTORS
from sightline.answering.answerer import Answerer
from sightline.answering.materialise import Trace
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import parse_arm
from sightline.auditing.loop import _row
from sightline.backbones.cuts import LayerCuts
from sightline.core.prefix import Encoded
from sightline.core.selection import Budget, LayerState, Selection, TwoStages
from sightline.cost.subject import Subject
from sightline.selectors.sgl import SGL
from sightline.selectors.vtw import VTW
from tests.refusals import Refused
from tests.unit.answering.conftest import image_of, tiny


@pytest.fixture(scope="module")
def subject() -> Subject:
    return tiny("tiny-llava")


def answered(subject: Subject, text: str) -> tuple[dict[str, Any], Trace, Encoded]:
    """The row of an arm about one image, without its geometry."""
    arm, probe = parse_arm(text), subject.probe(0)
    encoded, answerer = image_of(subject, arms=[arm]), Answerer(subject.backbone, YesNo())
    answerer.step.refuse_unserved([arm])
    (found,) = answerer.answer(arm, [probe], [encoded])
    facts = defaultdict(str, positions="preserve", versions={}, conditions={})
    return _row(arm, probe, encoded, found, None, facts), found.trace, encoded


def test_withdrawn_tokens_leave_no_lineage_and_a_share_of_the_layers(subject: Subject) -> None:
    row, trace, encoded = answered(subject, "vtw:0.3")
    layers, n = len(subject.backbone.language.layers), encoded.n
    assert row["k_layers"] == [n] + [0] * (layers - 1)
    assert row["k_tokens"] == 0
    assert row["keep"] == row["keep_layer_mean"] == row["keep_spent"] == pytest.approx(1 / layers)
    assert not trace.lineage.any()
    assert (trace.k, trace.shares) == (0, None)
    assert row["sequence_pruned"] == row["sequence_full"] - n
    everything, _, _ = answered(subject, "vtw:1.0")
    full, _, _ = answered(subject, "full")
    assert everything["k_layers"] == [n] * layers
    assert np.isclose(everything["loss_yes"], full["loss_yes"], rtol=1e-5)
    assert not np.isclose(row["loss_yes"], full["loss_yes"], rtol=1e-5)


SPLITS = [
    ("vscan_both", 64, 32, {15: 32}, 96),
    ("vscan_both", 64, 28, {13: 32}, 96),
    ("apet_both", 64, 32, {15: 32}, 96),
    ("nuwa_both", 64, 32, {15: 16}, 112),
    ("nuwa_both", 192, 32, {15: 48}, 336),
    ("duet_both", 192, 32, {15: 153, 23: 0}, 307),
    ("duet_both", 128, 28, {13: 102, 20: 0}, 205),
]
"""Method, mean over the layers, depth, what is left behind which layer and what reaches the model, as published."""


def test_the_budget_is_split_between_the_stages_as_published() -> None:
    for name, k, layers, left, reaching in SPLITS:
        selector = SELECTORS.get(name)()
        assert isinstance(selector, TwoStages)
        assert selector.reaching(Budget.tokens(k), layers) == Budget.tokens(reaching), (name, k)
        assert selector.schedule(reaching, k, layers) == left, (name, k)
        whole = selector.schedule(576, 576, layers)
        assert set(whole.values()) == {576}, "all tokens: nothing is cut"
        assert selector.schedule(576, 500, layers)[max(whole)] > selector.schedule(576, 400, layers)[max(whole)]


@pytest.mark.parametrize("name", ["vscan", "apet", "nuwa", "duet"])
def test_both_stages_in_one_arm(subject: Subject, name: str) -> None:
    """What the first selects as its own arm is what reaches the model; what is left comes from there alone."""
    layers = {"vscan": ":local_layer=1", "nuwa": ":first_layer=1,last_layer=2"}.get(name, "")
    row, trace, encoded = answered(subject, f"{name}_both:0.4{layers}")
    counts = trace.k_layers or []
    reached, first, _ = answered(subject, f"{name}:{counts[0]}t{layers}")
    assert encoded.n > counts[0] > trace.k == counts[-1]
    assert not (trace.lineage & ~first.lineage).any(), "lineage goes through both"
    assert not (trace.anchors & ~first.anchors).any()
    assert trace.anchors.sum() == trace.k
    assert row["keep"] == pytest.approx(np.mean(counts) / encoded.n)
    assert row["keep"] == pytest.approx(0.4, abs=1 / len(counts))
    assert row["sequence_pruned"] == row["sequence_full"] - encoded.n + trace.k
    assert trace.signal_ms + trace.select_ms > trace.inside_ms > 0.0
    assert row["loss_yes"] != reached["loss_yes"], "the cut is felt"


def test_a_rehearsal_looks_at_every_layer_of_the_whole_prompt(subject: Subject) -> None:
    """What the second reading keeps is what all layers of the uncut prompt attended to."""
    encoded = image_of(subject)
    passed = Answerer(subject.backbone, YesNo()).over(parse_arm("sgl:0.3"), [subject.probe(0)], [encoded])
    prefix = passed.prefix(0)
    cutter = passed.cutter([0], [prefix])
    assert cutter is not None
    seen = dict[int, np.ndarray]()

    class Looking(SGL):
        def look(self, state: LayerState) -> None:
            assert len(state.image) == encoded.n
            rows = state.signals["lm.attention"][:, int(state.image[-1]) :, state.image]
            seen[state.layer] = rows.sum(dim=(0, 1)).numpy()

    depth = len(subject.backbone.language.layers)
    whole = LayerCuts(Looking(), dict.fromkeys(range(depth), encoded.n), [prefix], [encoded.layout], [""])
    subject.backbone.language.launch([prefix], whole)
    assert sorted(seen) == list(range(depth))
    subject.backbone.language.launch([prefix], cutter)
    wanted = np.sort(np.argsort(-sum(seen.values()), kind="stable")[: len(cutter.anchors[0])])
    assert cutter.anchors[0].tolist() == wanted.tolist()
    row, trace, _ = answered(subject, "sgl:0.3")
    assert trace.k == row["k_tokens"] == len(wanted)
    assert trace.signal_ms > trace.inside_ms, "the first reading is billed, and not as part of the second"


def test_a_budget_over_layers_is_not_counted_by_tiles(refused: Refused) -> None:
    refused("vtw spreads its budget over the language layers", parse_arm, "vtw:0.5/tile")


def test_questions_with_counts_of_their_own_are_not_read_together(subject: Subject, refused: Refused) -> None:
    @dataclass(frozen=True)
    class Uneven(VTW):
        """Lets one token less of every further question continue."""

        varies: ClassVar[bool] = True
        asked: list[int] = field(default_factory=list)

        def cut(self, state: LayerState, k: int) -> Selection:
            self.asked.append(len(self.asked))
            return Selection(torch.arange(9 - len(self.asked)))

    encoded = image_of(subject)
    full = Answerer(subject.backbone, YesNo()).over(parse_arm("full"), [subject.probe(0)], [encoded])
    prefixes, layouts = [full.prefix(0), full.prefix(0)], [encoded.layout] * 2
    cuts = LayerCuts(Uneven(), {0: 9}, prefixes, layouts, ["", ""])
    refused("use a batch of 1", subject.backbone.language.launch, prefixes, cuts)
    alone = LayerCuts(Uneven(), {0: 9, 1: 9}, prefixes[:1], layouts[:1], [""])
    subject.backbone.language.launch(prefixes[:1], alone)
    assert alone.counts == {0: 8, 1: 7}, "fewer than the schedule allows, at every layer of it"
