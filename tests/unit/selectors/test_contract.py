"""What every selector owes: K outputs, distinct anchors, the same alone and in a batch, a schedule that ends at K."""

from __future__ import annotations

import pytest
import torch

from tests.refusals import Refused
from tests.unit.selectors.views import KINDS, check_batch, check_selection, degenerate_images, layer_state, made, scene

BEFORE = """
    anchorprune anchorprune_qwen anchorprune_qwen:aggregate=mean cdpruner coin divprune duet scope scope:combined=add
    visionzip visionzip_qwen fastervlm hiprune hiprune:alpha=1.0,wrap=false holov holov:crops=5 holov:crops=100
    vispruner vispruner:important_ratio=0.0 vispruner:important_ratio=1.0 vscan flowcut flowcut:last_layer=0 mmtok
    prumerge prumerge:neighbours=3 prumerge_plus tome tome:metric=tokens tome:most=3 nuwa
    nuwa:per_region=3,reach=2.0,percentile=0.0 apet apet:at=vision prunesid gprune pixelprune hired
    hired:regions=tiles,alpha=0.2 globalcom2 trim
"""
NUMBERS_ALONE = ("anchorprune", "anchorprune_qwen", "cdpruner", "coin", "divprune")
"""Methods whose greedy loops compare numbers alone: what they pick beside NaN the framework checks and refuses."""
BETWEEN = """
    fastv pyramiddrop fitprune ivcprune v2drop dart tokencarve tokencarve:ranking=information
    tokencarve:ranking=attention sparsevlm vlmpruner pact vscan_inside nuwa_inside apet_inside apet_inside:basis=2
"""
PUBLISHED = {
    "ivcprune": ((576, 192, 32), {15: 192}),
    "dart": ((576, 128, 32), {1: 128}),
    "vlmpruner": ((576, 231, 32), {1: 231}),
    "pact": ((576, 128, 28), {3: 128}),
    "vscan_inside": ((576, 32, 32), {15: 32}),
    "nuwa_inside": ((576, 64, 32), {15: 64}),
    "apet_inside": ((576, 32, 32), {15: 32}),
}
"""(n, k, layers) of a published setting, and where it cuts."""
REFUSED = """
    anchorprune:patience=0 anchorprune_qwen:max_ratio=2.0 anchorprune_qwen:aggregate=sum gprune:temperature=0.0
    pixelprune:tolerance=-1.0 coin:alpha=1.5 mmtok:text_temp=0.0 scope:combined=product scope:alpha=-1.0
    hiprune:alpha=-0.1 holov:crops=0 vispruner:important_ratio=1.5 vscan:side=0 flowcut:last_layer=-1
    visionzip:order=random prumerge:neighbours=-1 tome:metric=values tome:most=0 nuwa:per_region=5 nuwa:reach=0.0
    duet:width=0 apet:basis=0 apet:at=somewhere prunesid:lenience=-1.0 hired:alpha=1.5 hired:regions=rings
    globalcom2:temperature=0.0 vscan_inside:depth=1.5 apet_inside:basis=0 fastv:fastv_k=0 pyramiddrop:stages=0
    ivcprune:coordinates=1.5 dart:image_pivots=0 tokencarve:weight=1.5 tokencarve:full_layers=0
    tokencarve:ranking=entropy vlmpruner:batch=0 pact:full_layers=0
"""
"""Arguments that make no sense."""


@pytest.mark.parametrize("text", BEFORE.split())
def test_before_the_language_model(text: str) -> None:
    """Every budget, degenerate inputs, and batches; those that have a class token have one output without anchor."""
    selector, whole = made(text), scene(0)
    n = whole.tokens.shape[0]
    assert set(selector.needs) <= set(whole.signals)
    for kind, view in {"random": whole, **degenerate_images()}.items():
        if "NaN" in kind and selector.name in NUMBERS_ALONE:
            continue
        for k in range(1, n + 1) if kind == "random" else (1, n // 3, n - 1, n):
            class_source = text == "visionzip" and k > 1
            without = class_source or ("prumerge" in text and k < n)
            check_selection(selector.select(view, k), n, k, int(without), "NaN" not in kind, class_source)
    check_batch(selector, [scene(seed) for seed in range(5)], k=n // 3)
    if selector.name in ("anchorprune_qwen", "coin", "mmtok"):  # questions of any length share a batch
        check_batch(selector, [scene(seed, texts=texts) for seed, texts in enumerate((0, 2, 9))], k=11)


@pytest.mark.parametrize("text", REFUSED.split())
def test_arguments_that_make_no_sense_are_refused(text: str, refused: Refused) -> None:
    refused(text.replace(":", ": ", 1), made, text)


@pytest.mark.parametrize("text", BETWEEN.split())
def test_between_its_layers(text: str) -> None:
    """Exactly k distinct tokens; a mix that is finite and in which every output contains its anchor; a schedule whose
    counts fall from at most n to exactly k, at ascending layers, with a layer left to run on the k survivors."""
    selector = made(text)
    for kind in KINDS:
        for shape, behind in ((shape, behind) for shape in ((1, 1), (1, 2), (3, 5), (6, 7)) for behind in (0, 1, 6)):
            state = layer_state(*shape, behind=behind, kind=kind)
            n = len(state.image)
            for k in {1, 2, 3, 5, 8, n // 2, n - 1, n} & set(range(1, n + 1)):
                selection = selector.cut(state, k)
                assert selection.anchors.dtype == torch.int64
                check_selection(selection, n, k)
                if selection.mix is not None:
                    assert bool((selection.mix[torch.arange(k), selection.anchors] > 0).all())
                    torch.testing.assert_close(selection.mix.sum(dim=-1), torch.ones(k), rtol=0, atol=1e-4)
    for layers in (1, 2, 3, 4, 5, 12, 28, 32, 36):
        for n, k in ((1, 1), (2, 1), (9, 9), (35, 4), (64, 26), (576, 231), (576, 3), (2500, 1000)):
            schedule = selector.schedule(n, k, layers)
            counts, cuts = list(schedule.values()), list(schedule)
            assert counts[-1] == k, (layers, n, k)
            assert counts == sorted(counts, reverse=True)
            assert counts[0] <= n
            assert cuts == sorted(cuts)
            assert 0 <= cuts[0] <= cuts[-1] <= max(0, layers - 2)


def test_published_settings_cut_where_they_did() -> None:
    assert {name: made(name).schedule(*setting) for name, (setting, _) in PUBLISHED.items()} == {
        name: schedule for name, (_, schedule) in PUBLISHED.items()
    }
