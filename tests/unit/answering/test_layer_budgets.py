"""Budgets that are a mean over the language layers: rows, masks and costs of methods that leave few tokens, or none."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import Trace, all_needs
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import parse_arm
from sightline.auditing.loop import CONTRACT, _row
from sightline.core.prefix import Encoded
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from tests.refusals import Refused


@pytest.fixture(scope="module")
def subject() -> Subject:
    return Subject.of(Request("prefill", config="tiny-llava", device="cpu", dtype="float32"))


def answered(subject: Subject, text: str) -> tuple[dict[str, object], Trace, Encoded]:
    """The row of an arm about one image, without its geometry."""
    arm, probe = parse_arm(text), subject.probe(0)
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))], all_needs([arm]))
    answerer = Answerer(subject.backbone, YesNo())
    answerer.step.refuse_unserved([arm])
    (found,) = answerer.answer(arm, [probe], [encoded])
    contract = dict.fromkeys(CONTRACT, "") | {"positions": "preserve", "versions": {}, "conditions": {}}
    return _row(arm, probe, encoded, found, None, contract), found.trace, encoded


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


def test_a_budget_over_layers_is_not_counted_by_tiles(refused: Refused) -> None:
    refused("vtw spreads its budget over the language layers", parse_arm, "vtw:0.5/tile")
