"""Batches halve when memory runs out, and the order of results never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from sightline.backbones.base import Backbone
from sightline.cost.subject import Subject
from sightline.engine.batching import batches, launch_prefixes
from sightline.engine.encoding import encode_all
from sightline.errors import SightlineError
from sightline.types import Prefix


def test_longest_first_within_the_budget() -> None:
    assert batches([3, 9, 5, 5], 10) == [[1], [2, 3], [0]]
    assert batches([30], 10) == [[0]]


def test_scores_come_back_in_the_order_given(backbone: Backbone, prefixes: list[Prefix]) -> None:
    together, shares = launch_prefixes(backbone, prefixes, 10_000).read()
    backwards, _ = launch_prefixes(backbone, prefixes[::-1], 10_000).read()
    for answer, other in zip(together, backwards[::-1], strict=True):
        assert answer.loss_yes == pytest.approx(other.loss_yes, abs=1e-5)
    assert all(share > 0 for share in shares)
    assert len(set(shares)) == 1  # one batch, equal shares


def test_out_of_memory_halves_the_batch(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = launch_prefixes(backbone, prefixes, 10_000).read()
    launch = backbone.language.launch
    sizes = []

    def scarce(group: Sequence[Prefix], cutter: Any = None) -> Any:
        sizes.append(len(group))
        if len(group) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return launch(group, cutter)

    monkeypatch.setattr(backbone.language, "launch", scarce)
    answers, _ = launch_prefixes(backbone, prefixes, 10_000).read()
    assert sizes == [4, 2, 1, 1, 2, 1, 1]
    for answer, other in zip(answers, expected, strict=True):
        assert answer.loss_yes == pytest.approx(other.loss_yes, abs=1e-5)


def test_a_single_prefix_that_does_not_fit_is_an_error(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(backbone.language, "launch", full)
    with pytest.raises(SightlineError, match="out of memory on a single prefix"):
        launch_prefixes(backbone, prefixes, 10_000).read()


def test_other_errors_are_not_mistaken_for_memory(
    backbone: Backbone, prefixes: list[Prefix], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("shapes do not match")

    monkeypatch.setattr(backbone.language, "launch", broken)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        launch_prefixes(backbone, prefixes, 10_000).read()


@pytest.mark.parametrize("batch_images", [1, 2, 8])
def test_encoding_in_batches_keeps_order_and_values(subject: Subject, batch_images: int) -> None:
    backbone = subject.backbone
    pixels = [backbone.preprocess(subject.picture(i)) for i in range(3)]
    alone = [backbone.encode([item])[0] for item in pixels]
    for one, other in zip(alone, encode_all(backbone, pixels, (), batch_images), strict=True):
        assert torch.allclose(one.tokens, other.tokens, atol=1e-5)
        for level, same in zip(one.deepstack, other.deepstack, strict=True):
            assert torch.allclose(level, same, atol=1e-5)


def test_encoding_halves_when_memory_runs_out(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = subject.backbone
    pixels = [backbone.preprocess(subject.picture(i)) for i in range(3)]
    encode = backbone.encode
    sizes = []

    def scarce(batch: Sequence[Any], needs: Any = ()) -> Any:
        sizes.append(len(batch))
        if len(batch) > 1:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return encode(batch, needs)

    monkeypatch.setattr(backbone, "encode", scarce)
    assert len(encode_all(backbone, pixels, (), 4)) == 3
    assert sizes == [3, 1, 2, 1, 1]
