"""Budgets of every tile's own, with real selectors on models with one grid and with several tiles."""

from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import pytest
import torch

from sightline import SELECTORS, LayerSelector, Selection
from sightline.answering.materialise import Selected, SelectStep
from sightline.arms.arm import Arm, parse_arm
from sightline.core.prefix import Encoded
from sightline.core.selection_rules import lineage_mask
from sightline.cost.subject import Subject
from tests.answers import score_arm
from tests.unit.answering.conftest import image_of, tiny


@pytest.fixture(scope="module")
def tiled() -> Subject:
    return tiny("tiny-internvl")


@pytest.fixture(scope="module")
def image(tiled: Subject) -> Encoded:
    encoded = image_of(tiled)
    assert encoded.layout == ((4, 4),) * 5, "four tiles and a thumbnail"
    return encoded


def selected(subject: Subject, images: list[Encoded], arm: Arm, *, queues: bool = False) -> list[Selected]:
    step = SelectStep(subject.backbone)
    step.refuse_unserved([arm])
    step.queues = queues
    probes = [subject.probe(i) for i in range(len(images))]
    prompts = [subject.backbone.prompt(probe.question, probe.target_text) for probe in probes]
    return step.many(images, prompts, probes, arm)


def by_tile(selection: Selection, layout: tuple[tuple[int, int], ...]) -> list[list[int]]:
    """Kept tokens of every tile, counted from its first."""
    edges = np.cumsum([0, *(rows * columns for rows, columns in layout)])
    kept = selection.anchors.numpy()
    return [(kept[(kept >= first) & (kept < end)] - first).tolist() for first, end in pairwise(edges)]


def test_every_method_gives_each_tile_its_share_and_draws_differ(tiled: Subject, image: Encoded) -> None:
    """Methods that choose before the language model, need no signal of the tower and have a budget."""
    kinds = [(name, kind) for name, kind in SELECTORS.items() if not kind.needs_file and not kind.inside]
    names = [name for name, kind in kinds if kind.needs_budget and not kind.resizes and not kind().needs]
    assert {"target", "random", "grid", "protected", "divprune"} <= set(names)
    for name in names:
        (chosen,) = selected(tiled, [image], parse_arm(f"{name}:0.3/tile"))
        assert [len(kept) for kept in by_tile(chosen.selection, image.layout)] == [5] * 5, name
        assert chosen.selection.anchors.tolist() == sorted(set(chosen.selection.anchors.tolist())), name
    (chosen,) = selected(tiled, [image], parse_arm("random:5t/tile"))
    assert len({tuple(kept) for kept in by_tile(chosen.selection, image.layout)}) == 5


def test_a_tile_is_chosen_from_as_if_it_were_alone(tiled: Subject, image: Encoded) -> None:
    arm = parse_arm("divprune:0.3/tile")
    (chosen,) = selected(tiled, [image], arm)
    for tile, kept in enumerate(by_tile(chosen.selection, image.layout)):
        here = slice(16 * tile, 16 * tile + 16)
        alone = replace(image, tokens=image.tokens[here], cells=image.cells[here], layout=((4, 4),))
        (expected,) = selected(tiled, [alone], parse_arm("divprune:0.3"))
        assert kept == expected.selection.anchors.tolist()


def test_merges_stay_within_their_tile_and_the_prefix_holds_all_tiles(tiled: Subject, image: Encoded) -> None:
    (chosen,) = selected(tiled, [image], parse_arm("tome:0.3/tile:metric=tokens"))
    mix = chosen.selection.mix
    assert mix is not None
    assert mix.shape == (25, 80)
    assert bool(lineage_mask(chosen.selection, 80).all()), "every token flows into some output"
    sources = [set((row.nonzero().flatten() // 16).tolist()) for row in mix]
    assert sources == [{int(anchor) // 16} for anchor in chosen.selection.anchors]
    torch.testing.assert_close(mix.sum(dim=1), torch.ones(25))
    (scored,) = score_arm(SelectStep(tiled.backbone), parse_arm("target:3t/tile"), [tiled.probe(0)], [image])
    assert scored.k == 15
    assert scored.sequence_full - scored.sequence_pruned == 80 - 15


def test_alike_tiles_in_one_call_are_chosen_from_as_each_alone(tiled: Subject, image: Encoded) -> None:
    for text in ("divprune:0.3/tile", "tome:0.3/tile:metric=tokens", "random:0.3/tile"):
        alone = selected(tiled, [image, image], parse_arm(text))
        together = selected(tiled, [image, image], parse_arm(text), queues=True)
        for expected, found in zip(alone, together, strict=True):
            assert torch.equal(found.selection.anchors, expected.selection.anchors), text
            if expected.selection.mix is not None:
                torch.testing.assert_close(found.selection.mix, expected.selection.mix)
            assert len(found.select_times) == 5, "every tile is billed"


@pytest.mark.parametrize("config", ["tiny-llava", "tiny-qwen3-vl"])
def test_on_one_grid_both_kinds_of_budget_are_the_same(config: str) -> None:
    subject = tiny(config)
    encoded, step = image_of(subject), SelectStep(subject.backbone)
    assert len(encoded.layout) == 1
    for text in ("random:0.3", "target:0.3", "tome:0.3:metric=tokens", "grid:5t", "dart:0.3", "sparsevlm:0.5"):
        name, budget, *rest = text.split(":")
        tile = ":".join([name, f"{budget}/tile", *rest])
        first, second = (score_arm(step, parse_arm(each), [subject.probe(0)], [encoded])[0] for each in (text, tile))
        assert np.array_equal(first.anchors, second.anchors), text
        assert np.array_equal(first.lineage, second.lineage), text
        assert first.answer == second.answer, text


@pytest.mark.parametrize("text", ["visionzip:0.3/tile", "prumerge:0.3/tile", "tome:0.3/tile", "fastervlm:0.3/tile"])
def test_signals_of_the_tower_are_cut_along(text: str) -> None:
    """A grid said to be two blocks: its rows above, and those below."""
    subject = tiny("tiny-llava")
    arm = parse_arm(text)
    encoded = image_of(subject, arms=[arm])
    ((rows, columns),) = encoded.layout
    halves = replace(encoded, layout=((2, columns), (rows - 2, columns)))
    (chosen,) = selected(subject, [halves], arm)
    shares = [arm.budget.resolve(2 * columns), arm.budget.resolve((rows - 2) * columns)]
    without_cell = int((chosen.selection.anchors < 0).sum())
    assert len(chosen.selection.anchors) == sum(shares)
    kept = by_tile(chosen.selection, halves.layout)
    assert [len(each) for each in kept] == [share - without_cell // 2 for share in shares]
    (scored,) = score_arm(SelectStep(subject.backbone), arm, [subject.probe(0)], [halves])
    assert scored.k == sum(shares)


def test_every_method_between_layers_gives_each_tile_its_share(tiled: Subject, image: Encoded) -> None:
    names = [
        name for name, kind in SELECTORS.items() if kind.inside and not kind.needs_file and kind.budget_counts == "kept"
    ]
    assert {"dart", "fastv", "sparsevlm", "pyramiddrop", "fitprune", "tokencarve", "vlmpruner"} <= set(names)
    step, probes, images = SelectStep(tiled.backbone), [tiled.probe(0), tiled.probe(1)], [image, image]
    for name in names:
        arm = parse_arm(f"{name}:0.3/tile")
        for scored in score_arm(step, arm, probes, images):
            assert scored.anchors.reshape(5, 16).sum(axis=1).tolist() == [5] * 5, name
            assert scored.k == 25
            assert scored.k_layers[0] == 80
            assert scored.k_layers[-1] == 25
            schedule = cast(LayerSelector, arm.selector).schedule(16, 5, len(scored.k_layers))
            cut = min(layer for layer, left in schedule.items() if left < 16)
            assert [count == 80 for count in scored.k_layers] == [layer <= cut for layer in range(len(scored.k_layers))]
            assert (scored.lineage | ~scored.anchors).all(), name


def test_the_first_cut_within_a_tile_is_by_that_tile_alone(tiled: Subject, image: Encoded) -> None:
    """FastV ranks by the last position's attention: by tiles it takes the best of each, not the best of all."""
    step, probe = SelectStep(tiled.backbone), tiled.probe(0)
    ranks = [score_arm(step, parse_arm(f"fastv:{k}t"), [probe], [image])[0].anchors for k in range(1, 81)]
    order = np.argmax(np.stack(ranks), axis=0)  # the budget from which on a token is kept
    (scored,) = score_arm(step, parse_arm("fastv:0.3/tile"), [probe], [image])
    best = np.argsort(order.reshape(5, 16), axis=1)[:, :5]
    assert [set(np.flatnonzero(kept)) for kept in scored.anchors.reshape(5, 16)] == [set(row) for row in best]
