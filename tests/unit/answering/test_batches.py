"""Prefixes are laid out as they are read; batches of them halve when memory runs out, and results keep their order."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

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


@dataclass
class Given(ArmPass):
    """A pass whose prefixes are there already."""

    given: Sequence[Prefix]

    @property
    def lengths(self) -> list[int]:
        return [len(prefix.embeds) for prefix in self.given]

    @property
    def groups(self) -> list[list[int]]:
        return [list(range(len(self.given)))]

    def prefix(self, i: int) -> Prefix:
        return self.given[i]

    def traces(self) -> list[Trace]:
        return []


def launched(backbone: Backbone, prefixes: Sequence[Prefix]) -> LaunchedBatches:
    return launch_batches(YesNo(), Given(backbone, parse_arm("full"), [], [], [], "preserve", prefixes), 10_000)


def test_every_branch_stands_behind_what_all_share_and_is_read_where_its_tokens_are_predicted(subject: Subject) -> None:
    backbone = subject.backbone
    (encoded,) = backbone.encode([backbone.preprocess(subject.image(0))])
    prompt = backbone.prompt("Is it there?", "it", (" certainly not", " yes indeed", " no"))
    kept = torch.arange(1, encoded.n, 3)
    prefix = materialise(backbone, encoded, prompt, Selection(kept), "preserve")
    inputs = [each[:-1] for each in prompt.continuations]
    assert len(inputs[0]) > 0
    assert len(inputs[1]) > 0
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
    backwards, _ = launched(backbone, prefixes[::-1]).read()
    for answer, other in zip(together, backwards[::-1], strict=True):
        assert answer[0].loss == pytest.approx(other[0].loss, abs=1e-5)
    assert all(share > 0 for share in shares)
    assert len(set(shares)) == 1  # one batch, equal shares
    sizes = one_fits(monkeypatch, backbone.language, "launch")
    answers, _ = launched(backbone, prefixes).read()
    assert sizes == [4, 2, 1, 1, 1, 1]  # what did not fit once is not tried again
    launched(backbone, prefixes)
    assert sizes[6:] == [1, 1, 1, 1]
    for answer, other in zip(answers, together, strict=True):
        assert answer[0].loss == pytest.approx(other[0].loss, abs=1e-5)


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
    backbone, arm = subject.backbone, parse_arm(selector)
    images = encode_all(backbone, [backbone.preprocess(subject.image(0)) for _ in range(3)])
    probes = [subject.probe(i) for i in range(3)]
    step = SelectStep(backbone)
    expected = [item.selection.anchors for item in step.many(images, [subject.prompt] * 3, probes, arm)]
    step.queues = True  # as on a GPU: alike images together
    sizes = one_fits(monkeypatch, step, "_select")
    selected = step.many(images, [subject.prompt] * 3, probes, arm)
    together = arm.selector.batches
    assert sizes == ([3, 1, 2, 1, 1] if together else [1, 1, 1])
    for item, anchors in zip(selected, expected, strict=True):
        assert torch.equal(item.selection.anchors, anchors)


@pytest.mark.parametrize(
    ("raised", "seen", "words"),
    [
        (torch.cuda.OutOfMemoryError("CUDA out of memory"), SightlineError, "out of memory on a single prefix"),
        (RuntimeError("shapes do not match"), RuntimeError, "shapes do not match"),
    ],
    ids=["does not fit", "another error"],
)
def test_a_prefix_that_does_not_fit_is_a_sentence_and_another_error_is_not_mistaken_for_that(
    backbone: Backbone,
    prefixes: list[Prefix],
    monkeypatch: pytest.MonkeyPatch,
    raised: Exception,
    seen: type[Exception],
    words: str,
) -> None:
    def fail(*_: Any) -> Any:
        raise raised

    monkeypatch.setattr(backbone.language, "launch", fail)
    with pytest.raises(seen, match=words):
        launched(backbone, prefixes).read()


def test_encoding_in_batches_keeps_order_and_values_and_halves_without_memory(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = subject.backbone
    pixels = [backbone.preprocess(subject.image(i)) for i in range(3)]
    alone = [backbone.encode([item])[0] for item in pixels]
    for batch_images in (1, 2, 8):
        for one, other in zip(alone, encode_all(backbone, pixels, (), batch_images), strict=True):
            assert torch.allclose(one.tokens, other.tokens, atol=1e-5)
            for level, same in zip(one.deepstack, other.deepstack, strict=True):
                assert torch.allclose(level, same, atol=1e-5)
    sizes = one_fits(monkeypatch, backbone, "encode")
    assert len(encode_all(backbone, pixels, (), 4)) == 3
    assert sizes == [3, 1, 2, 1, 1]
