"""What every selector owes: K outputs, distinct anchors, the same alone and in a batch, a schedule that ends at K."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from sightline.core.selection import LayerSelector, Selection
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from tests.unit.selectors.views import KINDS, check_batch, check_selection, degenerate_images, layer_state, scene

BEFORE: list[tuple[str, dict[str, Any]]] = [
    ("anchorprune", {}),
    ("anchorprune_qwen", {}),
    ("anchorprune_qwen", {"aggregate": "mean"}),
    ("cdpruner", {}),
    ("coin", {}),
    ("divprune", {}),
    ("duet", {}),
    ("scope", {}),
    ("scope", {"combined": "add"}),
    ("visionzip", {}),
    ("visionzip_qwen", {}),
    ("fastervlm", {}),
    ("hiprune", {}),
    ("hiprune", {"alpha": 1.0, "wrap": False}),
    ("holov", {}),
    ("holov", {"crops": 5}),
    ("holov", {"crops": 100}),
    ("vispruner", {}),
    ("vispruner", {"important_ratio": 0.0}),
    ("vispruner", {"important_ratio": 1.0}),
    ("vscan", {}),
    ("flowcut", {}),
    ("flowcut", {"last_layer": 0}),
    ("mmtok", {}),
    ("prumerge", {}),
    ("prumerge", {"neighbours": 3}),
    ("prumerge_plus", {}),
    ("tome", {}),
    ("tome", {"metric": "tokens"}),
    ("tome", {"most": 3}),
    ("nuwa", {}),
    ("nuwa", {"per_region": 3, "reach": 2.0, "percentile": 0.0}),
    ("apet", {}),
    ("apet", {"at": "vision"}),
    ("prunesid", {}),
    ("gprune", {}),
    ("pixelprune", {}),
    ("hired", {}),
    ("hired", {"regions": "tiles", "alpha": 0.2}),
    ("globalcom2", {}),
    ("trim", {}),
]
CLASS_TOKEN_STAYS: dict[str, Callable[[int, int], bool]] = {
    "prumerge": lambda k, n: k < n,
    "prumerge_plus": lambda k, n: k < n,
    "visionzip": lambda k, n: k > 1,
}
"""Methods with one output that has no anchor, and for which K of N."""
NUMBERS_ALONE = ("anchorprune", "anchorprune_qwen", "cdpruner", "coin", "divprune")
"""Methods whose greedy loops compare numbers alone: what they pick beside NaN the framework checks and refuses."""
ANY_QUESTION = ("anchorprune_qwen", "coin", "mmtok")
"""Methods that read a question of any length, also in a batch."""
BETWEEN: list[tuple[str, dict[str, Any]]] = [
    ("fastv", {}),
    ("pyramiddrop", {}),
    ("fitprune", {}),
    ("ivcprune", {}),
    ("v2drop", {}),
    ("dart", {}),
    ("tokencarve", {}),
    ("tokencarve", {"ranking": "information"}),
    ("tokencarve", {"ranking": "attention"}),
    ("sparsevlm", {}),
    ("vlmpruner", {}),
    ("pact", {}),
    ("vscan_inside", {}),
    ("nuwa_inside", {}),
    ("apet_inside", {}),
    ("apet_inside", {"basis": 2}),
]
PUBLISHED: dict[str, tuple[tuple[int, int, int], dict[int, int]]] = {
    "ivcprune": ((576, 192, 32), {15: 192}),
    "dart": ((576, 128, 32), {1: 128}),
    "vlmpruner": ((576, 231, 32), {1: 231}),
    "pact": ((576, 128, 28), {3: 128}),
    "vscan_inside": ((576, 32, 32), {15: 32}),
    "nuwa_inside": ((576, 64, 32), {15: 64}),
    "apet_inside": ((576, 32, 32), {15: 32}),
}
"""(n, k, layers) of a published setting, and where it cuts."""


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("anchorprune", {"patience": 0}, "patience"),
    ("anchorprune_qwen", {"max_ratio": 2.0}, "max_ratio"),
    ("anchorprune_qwen", {"aggregate": "sum"}, "aggregate"),
    ("gprune", {"temperature": 0.0}, "temperature"),
    ("pixelprune", {"tolerance": -1.0}, "tolerance"),
    ("coin", {"alpha": 1.5}, "alpha"),
    ("mmtok", {"text_temp": 0.0}, "text_temp"),
    ("scope", {"combined": "product"}, "scope"),
    ("scope", {"alpha": -1.0}, "scope"),
    ("hiprune", {"alpha": -0.1}, "alpha"),
    ("holov", {"crops": 0}, "crops"),
    ("vispruner", {"important_ratio": 1.5}, "important_ratio"),
    ("vscan", {"side": 0}, "side"),
    ("flowcut", {"last_layer": -1}, "last_layer"),
    ("visionzip", {"order": "random"}, "order"),
    ("prumerge", {"neighbours": -1}, "neighbours"),
    ("tome", {"metric": "values"}, "metric"),
    ("tome", {"most": 0}, "most=0; it must be at least 1"),
    ("nuwa", {"per_region": 5}, "per_region"),
    ("nuwa", {"reach": 0.0}, "reach"),
    ("duet", {"width": 0}, "width"),
    ("apet", {"basis": 0}, "basis"),
    ("apet", {"at": "somewhere"}, "choose one of tokens, vision"),
    ("prunesid", {"lenience": -1.0}, "lenience"),
    ("hired", {"alpha": 1.5}, "alpha"),
    ("hired", {"regions": "rings"}, "choose one of strips, tiles"),
    ("globalcom2", {"temperature": 0.0}, "temperature"),
    ("vscan_inside", {"depth": 1.5}, "depth"),
    ("apet_inside", {"basis": 0}, "basis"),
    ("fastv", {"fastv_k": 0}, "fastv_k"),
    ("pyramiddrop", {"stages": 0}, "stages"),
    ("ivcprune", {"coordinates": 1.5}, "coordinates"),
    ("dart", {"image_pivots": 0}, "image_pivots"),
    ("tokencarve", {"weight": 1.5}, "tokencarve"),
    ("tokencarve", {"full_layers": 0}, "tokencarve"),
    ("tokencarve", {"ranking": "entropy"}, "tokencarve"),
    ("vlmpruner", {"batch": 0}, "vlmpruner"),
    ("pact", {"full_layers": 0}, "full_layers"),
]
"""Arguments that make no sense, and what the refusal is about."""


def made(name: str, arguments: dict[str, Any]) -> Any:
    kind: Any = SELECTORS.get(name)
    return kind(**arguments)


def named(value: Any) -> str:
    return (
        value if isinstance(value, str) else ",".join(f"{key}={setting}" for key, setting in value.items()) or "usual"
    )


@pytest.mark.parametrize(("name", "arguments"), BEFORE, ids=named)
def test_before_the_language_model(name: str, arguments: dict[str, Any]) -> None:
    check_contract(made(name, arguments), CLASS_TOKEN_STAYS.get(name, lambda k, n: False))


@pytest.mark.parametrize("name", ANY_QUESTION)
def test_questions_of_any_length_share_a_batch(name: str) -> None:
    check_batch(made(name, {}), [scene(seed, texts=texts) for seed, texts in enumerate((0, 2, 9))], k=11)


@pytest.mark.parametrize(("name", "arguments", "word"), REFUSED, ids=named)
def test_arguments_that_make_no_sense_are_refused(name: str, arguments: dict[str, Any], word: str) -> None:
    with pytest.raises(SightlineError, match=word):
        made(name, arguments)


@pytest.mark.parametrize(("name", "arguments"), BETWEEN, ids=named)
def test_between_its_layers(name: str, arguments: dict[str, Any]) -> None:
    check_any_input(made(name, arguments))
    check_schedule(made(name, arguments))


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_settings_cut_where_they_did(name: str) -> None:
    setting, schedule = PUBLISHED[name]
    assert made(name, {}).schedule(*setting) == schedule


def check_contract(selector: Any, class_token: Callable[[int, int], bool]) -> None:
    """Every budget, degenerate inputs, and batches. ``class_token``: for which K of N one output has no anchor."""
    whole = scene(0)
    n = whole.tokens.shape[0]
    assert set(selector.needs) <= set(whole.signals)
    for name, view in {"random": whole, **degenerate_images()}.items():
        if "NaN" in name and selector.name in NUMBERS_ALONE:
            continue
        for k in range(1, n + 1) if name == "random" else (1, n // 3, n - 1, n):
            without, finite = class_token(k, n), "NaN" not in name
            class_source = without and selector.name == "visionzip"
            check_selection(selector.select(view, k), n, k, int(without), finite, class_source)
    check_batch(selector, [scene(seed) for seed in range(5)], k=n // 3)


def check_any_input(selector: LayerSelector) -> None:
    """Ordinary and degenerate states, every budget of a small image, with and without text behind it."""
    for kind in KINDS:
        for shape in ((1, 1), (1, 2), (3, 5), (6, 7)):
            for behind in (0, 1, 6):
                state = layer_state(*shape, behind=behind, kind=kind)
                n = len(state.image)
                for k in {1, 2, 3, 5, 8, n // 2, n - 1, n} & set(range(1, n + 1)):
                    check_cut(selector.cut(state, k), n, k)


def check_cut(selection: Selection, n: int, k: int) -> None:
    """Exactly k distinct tokens of the n; a mix that is finite and in which every output contains its anchor."""
    anchors = selection.anchors
    assert anchors.dtype == torch.int64
    assert anchors.shape == (k,)
    assert len(set(anchors.tolist())) == k
    assert int(anchors.min()) >= 0
    assert int(anchors.max()) < n
    if selection.mix is not None:
        assert selection.mix.shape == (k, n)
        assert bool(torch.isfinite(selection.mix).all())
        assert bool((selection.mix[torch.arange(k), anchors] > 0).all())
        torch.testing.assert_close(selection.mix.sum(dim=-1), torch.ones(k), rtol=0, atol=1e-4)


def check_schedule(selector: LayerSelector) -> None:
    """Counts fall from at most n to exactly k, at ascending layers, and a layer is left to run on the k survivors."""
    for layers in (1, 2, 3, 4, 5, 12, 28, 32, 36):
        for n, k in ((1, 1), (2, 1), (9, 9), (35, 4), (64, 26), (576, 231), (576, 3), (2500, 1000)):
            schedule = selector.schedule(n, k, layers)
            counts = list(schedule.values())
            assert counts[-1] == k, (layers, n, k)
            assert counts == sorted(counts, reverse=True)
            assert counts[0] <= n
            assert list(schedule) == sorted(schedule)
            assert min(schedule) >= 0
            assert max(schedule) <= max(0, layers - 2)
