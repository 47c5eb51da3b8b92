"""Prefixes are laid out as they are read; batches of them halve when memory runs out, and results keep their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from sightline import Selection, SightlineError
from sightline.answering.answerer import LaunchedBatches, batches, launch_batches
from sightline.answering.materialise import ArmPass, SelectStep, Trace, materialise
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import parse_arm
from sightline.auditing.loop import encode_all
from sightline.backbones.base import Backbone
from sightline.backbones.language import Likelihood
from sightline.core.prefix import Prefix
from sightline.cost.subject import Subject
from sightline.device.work import in_halves
from tests.scarce import Scarce
from tests.unit.answering.conftest import image_of


@dataclass
class Given(ArmPass):
    """Prefixes that are there already, in the place of probes."""

    probes: Sequence[Any]

    @property
    def lengths(self) -> list[int]:
        return [len(prefix.embeds) for prefix in self.probes]

    def prefix(self, i: int) -> Prefix:
        return self.probes[i]

    def traces(self) -> list[Trace]:
        return []


def launched(backbone: Backbone, prefixes: Sequence[Prefix]) -> LaunchedBatches:
    return launch_batches(YesNo(), Given(backbone, parse_arm("full"), prefixes, [], [], "preserve"), 10_000)


def one_fits(monkeypatch: pytest.MonkeyPatch, owner: object, name: str) -> list[int]:
    """A method that runs out of memory for more than one; how many each call had is noted."""
    plain, sizes = getattr(owner, name), []

    def scarce(items: Sequence[Any], *rest: Any) -> Any:
        sizes.append(len(items))
        if len(items) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return plain(items, *rest)

    monkeypatch.setattr(owner, name, scarce)
    return sizes


def test_every_branch_stands_behind_what_all_share_and_is_read_where_its_tokens_are_predicted(subject: Subject) -> None:
    backbone, encoded = subject.backbone, image_of(subject)
    prompt = backbone.prompt("Is it there?", "it", (" certainly not", " yes indeed", " no"))
    kept = torch.arange(1, encoded.n, 3)
    prefix = materialise(backbone, encoded, prompt, Selection(kept), "preserve")
    inputs = [each[:-1] for each in prompt.continuations]
    assert min(map(len, inputs[:2])) > 0
    shared = prefix.start + prefix.span + len(prompt.shared)
    segments = [0] * shared + [number for number, each in enumerate(inputs, start=1) for _ in each]
    assert prefix.segments.tolist() == segments
    text = [*prompt.shared, *(token for each in inputs for token in each)]
    for (offsets, ids), branch in zip(prefix.reads, prompt.continuations, strict=True):
        complete = (*prompt.shared, *branch)
        assert ids == complete[len(prompt.tail) :]
        assert tuple(text[offset] for offset in offsets) == complete[len(prompt.tail) - 1 : -1]
    for level, whole in zip(prefix.deepstack, encoded.deepstack, strict=True):
        assert torch.equal(level, whole[kept])


def test_batches_are_longest_first_and_ties_are_a_yes(subject: Subject) -> None:
    assert batches([3, 9, 5, 5], 10) == [[1], [2, 3], [0]]
    assert batches([30], 10) == [[0]]
    verdict = YesNo().verdict(subject.probe(0), (Likelihood(1.5, greedy=True), Likelihood(1.5, greedy=False)))
    assert (verdict["predicted"], verdict["margin"]) == ("yes", 0.0)


def test_scores_come_back_in_the_order_given_and_batches_halve_without_memory(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    together, shares = launched(backbone, prefixes).read()
    losses = pytest.approx([answer[0].loss for answer in together], abs=1e-5)
    assert [answer[0].loss for answer in launched(backbone, prefixes[::-1]).read()[0]][::-1] == losses
    assert all(share > 0 for share in shares)
    assert len(set(shares)) == 1  # one batch, equal shares
    sizes = one_fits(monkeypatch, backbone.language, "launch")
    answers, _ = launched(backbone, prefixes).read()
    assert sizes == [4, 2, 1, 1, 1, 1]  # what did not fit once is not tried again
    assert [answer[0].loss for answer in answers] == losses
    launched(backbone, prefixes)
    assert sizes[6:] == [1, 1, 1, 1]


def test_what_failed_is_let_go_before_the_next_try() -> None:
    def work(group: list[int]) -> list[int]:
        held = [torch.zeros(2**16) for _ in group]
        return [len(tensor) for tensor in held]

    with Scarce(3 * 2**16 * 4) as memory:
        done = in_halves([[0, 1, 2, 3]], work, str)
    assert [group for group, _ in done] == [[0, 1], [2, 3]]
    assert memory.refused == 1


@pytest.mark.parametrize("selector", ["divprune:0.3", "target:0.3"])
def test_selecting_halves_when_memory_runs_out(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, selector: str
) -> None:
    arm, step = parse_arm(selector), SelectStep(subject.backbone)
    images = [image_of(subject)] * 3
    asked = [subject.prompt] * 3, [subject.probe(i) for i in range(3)], arm
    expected = step.many(images, *asked)
    step.queues = True  # as on a GPU: alike images together
    sizes = one_fits(monkeypatch, step, "_select")
    selected = step.many(images, *asked)
    assert sizes == ([3, 1, 2, 1, 1] if arm.selector.batches else [1, 1, 1])
    for one, other in zip(selected, expected, strict=True):
        assert torch.equal(one.selection.anchors, other.selection.anchors)


def test_a_prefix_that_does_not_fit_is_a_sentence_and_another_error_is_not_mistaken_for_that(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    for raised, seen, words in [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), SightlineError, "out of memory on a single prefix"),
        (RuntimeError("shapes do not match"), RuntimeError, "shapes do not match"),
    ]:
        monkeypatch.setattr(backbone.language, "launch", Mock(side_effect=raised))
        with pytest.raises(seen, match=words):
            launched(backbone, prefixes).read()


def test_encoding_in_batches_keeps_order_and_values_and_halves_without_memory(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone, alone = subject.backbone, [image_of(subject, i) for i in range(3)]
    pixels = [backbone.preprocess(subject.image(i)) for i in range(3)]
    for batch_images in (1, 2, 8):
        for one, other in zip(alone, encode_all(backbone, pixels, (), batch_images), strict=True):
            for level, same in zip((one.tokens, *one.deepstack), (other.tokens, *other.deepstack), strict=True):
                assert torch.allclose(level, same, atol=1e-5)
    sizes = one_fits(monkeypatch, backbone, "encode")
    assert len(encode_all(backbone, pixels, (), 4)) == 3
    assert sizes == [3, 1, 2, 1, 1]
