"""Doctor on small checkpoints of several architectures, and on models that are broken in one place each."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from sightline import SELECTORS, SightlineError
from sightline.answering.scorers.yes_no import YesNo
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.general import General
from sightline.backbones.llava_next import LlavaNext
from sightline.backbones.loading import served_by
from sightline.checks.doctor import checks, drawn_image, encoded_page, examined, run_check
from sightline.checks.doctor.cells import cell_count, cells_by_ramps, check_bright_word
from sightline.checks.doctor.examination import ExaminedPage, fact_lines, render
from sightline.core.prefix import Encoded
from sightline.core.selection import PositionPolicy, Selection
from tests.refusals import Refused

TINY = {"llava": {}, "qwen3vl": {"max_pixels": 100352}, "internvl": {"max_tiles": 2}}
GENERAL = ("qwen2_5_vl", "llava_next", "gemma3", "smolvlm", "mistral3")
SECOND_FORM = "internvl"
"""Qwen2's text model behind the tower that has a file of its own."""


CHECKS = (
    "cell_count", "cells_by_ramps", "bright_word", "own_prompt", "own_logits", "positions_unpruned", "positions_pruned",
    "shorter_prefix", "language_batches", "image_batches", "answer_lengths", "signal_rows", "methods",
)  # fmt: skip


@pytest.fixture(scope="module")
def page_image() -> Image.Image:
    return drawn_image().resize((320, 160))


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))


Load = Callable[[str], Backbone]
Asked = Callable[[str], ExaminedPage]


@pytest.fixture(scope="module")
def load(data: Path, zoo: Callable[[str], Path]) -> Load:
    """A fresh backbone every time: tests break theirs."""

    def loaded(name: str) -> Backbone:
        folder = data / "tiny" / name if name in TINY else zoo(name.removeprefix("zoo-"))
        return load_backbone(str(folder), dtype="float32", device="cpu", options=TINY.get(name))

    return loaded


@pytest.fixture
def asked(load: Load, page_image: Image.Image) -> Asked:
    """``asked("llava")``: a question about the page, for a backbone of one's own."""
    return lambda name: ExaminedPage.of(load(name), page_image)


@pytest.mark.parametrize("name", [*TINY, *GENERAL, f"zoo-{SECOND_FORM}"])
def test_every_check_passes_and_the_facts_are_said(name: str, load: Load, page_image: Image.Image) -> None:
    backbone = load(name)
    found = examined(backbone, page_image, name)
    assert [check.words for check in found if not check.passed] == []
    concerned = {"own_prompt": isinstance(backbone, General), "signal_rows": backbone.serves("vision.hidden@0") is None}
    assert [check.name for check in found] == [check for check in CHECKS if concerned.get(check, True)]
    said = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert said["passed"] is True
    assert said["served_by"]["images"] == type(backbone).__name__
    assert said["checks"]["cells_by_ramps"]["measured"]["difference"] < 1
    assert said["checks"]["bright_word"]["measured"]["places"] >= 4
    assert said["image"]["slots"] == said["image"]["tokens"] + said["separators"]["count"]
    assert (dict(fact_lines(found.facts))["separators"] == "none") == (said["separators"]["count"] == 0)
    assert [stage["stage"] for stage in said["stages"]][:3] == ["preprocess", "cells by ramps", "vision"]
    assert said["selectors"]["grid"] == "yes"
    kinds = ("yes", "yes, with file=FILE", "yes, in another form")
    ran = [method for method, answer in said["selectors"].items() if answer in kinds]
    assert sorted(said["checks"]["methods"]["measured"]["tried"]) == sorted(ran)


def test_a_route_says_whose_decoder_runs(load: Load, data: Path, page_image: Image.Image) -> None:
    assert served_by(load("gemma3")) == {
        "images": "Gemma3",
        "language": "the model's own decoder: it has layers of type sliding_attention",
    }
    assert served_by(load("zoo-internvl")) == {"images": "InternVL", "language": "loop"}
    options = {"jpeg_quality": 40, "first_resize_factor": 28, "max_pixels": 100352}
    folder = str(data / "tiny" / "qwen3vl")
    backbone = load_backbone(folder, dtype="float32", device="cpu", options=options)
    assert checks.own_logits(ExaminedPage.of(backbone, page_image)).passed


# ---------------------------------------------------------------------- broken on purpose


def with_cells(
    page: ExaminedPage, change: Callable[[np.ndarray, tuple[tuple[int, int], ...]], np.ndarray]
) -> ExaminedPage:
    return replace(page, encoded=replace(page.encoded, cells=change(page.encoded.cells, page.encoded.layout)))


def transposed(cells: np.ndarray, layout: tuple[tuple[int, int], ...]) -> np.ndarray:
    """Every block read column by column."""
    blocks, first = [], 0
    for rows, columns in layout:
        block = cells[first : first + rows * columns].reshape(rows, columns, 4)
        blocks.append(block.transpose(1, 0, 2).reshape(-1, 4))
        first += rows * columns
    return np.concatenate(blocks)


def shuffled_tiles(cells: np.ndarray, layout: tuple[tuple[int, int], ...]) -> np.ndarray:
    """The first two tiles taken for each other."""
    size = layout[0][0] * layout[0][1]
    return np.concatenate([cells[size : 2 * size], cells[:size], cells[2 * size :]])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        *((name, transposed) for name in ("llava", "qwen3vl", "qwen2_5_vl", "gemma3", "mistral3", "smolvlm")),
        *((name, shuffled_tiles) for name in ("internvl", "smolvlm")),
        ("llava_next", lambda cells, layout: cells[::-1]),
    ],
)
def test_a_wrong_map_is_told_by_ramps_and_the_word(name: str, change: Callable[..., np.ndarray], asked: Asked) -> None:
    page = with_cells(asked(name), change)
    (word, _), ramps = check_bright_word(page), cells_by_ramps(page)
    assert not word.passed
    assert min(word.measured["silenced"]) < 0.8
    assert "lights up OTHER tokens" in word.words
    assert ramps is not None
    assert not ramps.passed
    assert ramps.measured["difference"] > 10
    assert "are NOT those found" in ramps.words


def test_wrong_cells_are_told_by_ramps_and_by_their_count(asked: Asked) -> None:
    page = asked("llava")
    half = float(page.encoded.cells[0, 2] - page.encoded.cells[0, 0]) / 2
    shift = np.array([half, 0, half, 0])
    moved = cells_by_ramps(with_cells(page, lambda cells, layout: np.clip(cells + shift, 0, 1)))
    short = cells_by_ramps(with_cells(page, lambda cells, layout: cells[:-1]))
    assert moved is not None
    assert short is not None
    assert not moved.passed
    assert "575 are audited, 576 found" in short.words
    assert cell_count(page).passed
    assert not cell_count(with_cells(page, lambda cells, layout: cells[:-1])).passed
    assert not cell_count(with_cells(page, lambda cells, layout: cells + 0.5)).passed


@pytest.mark.parametrize("name", ["qwen2_5_vl", "gemma3", "qwen3vl"])
def test_features_in_another_order_are_told_by_the_logits(
    name: str, load: Load, page_image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load(name)
    encoded = backbone.vision

    def reversed_tokens(batch: Sequence[Any], needs: frozenset[str]) -> list[Encoded]:
        return [replace(image, tokens=image.tokens.flip(0)) for image in encoded(batch, needs)]

    monkeypatch.setattr(backbone, "vision", reversed_tokens)
    page = ExaminedPage.of(backbone, page_image)
    assert "differs from the model's own forward" in checks.own_logits(page).words
    assert not check_bright_word(page)[0].passed


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3"])
def test_wrong_positions_are_told(name: str, asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    page = asked(name)
    own = page.backbone.visual_positions
    assert checks.policies_order_pruned(page).passed

    def crowded(encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int | Tensor]:
        ids, following = own(encoded, slots, start, policy)
        return (ids, following) if policy == "preserve" else (torch.full_like(ids, start), start + 1)

    monkeypatch.setattr(page.backbone, "visual_positions", crowded)
    assert checks.own_logits(page).passed, "preserve is as it was"
    assert not checks.policies_agree_unpruned(page).passed
    pruned = checks.policies_order_pruned(page)
    assert pruned.measured["preserve"] == "in order"
    assert pruned.measured["compact"] != "in order"

    def moved(encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy) -> tuple[Tensor, int | Tensor]:
        ids, following = own(encoded, slots, start, policy)
        return ids + 7 * (ids != start), following + 7

    monkeypatch.setattr(page.backbone, "visual_positions", moved)
    assert not checks.own_logits(page).passed


def test_ids_out_of_order_are_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    page = asked("qwen2_5_vl")
    own = page.backbone.visual_positions
    wrong: list[Callable[[Tensor, Any], tuple[Tensor, Any]]] = [
        lambda ids, following: (ids, following - 3),
        lambda ids, following: (ids - 100, following),
        lambda ids, following: (ids[:, :1].expand_as(ids), following),
    ]
    for change in wrong:
        monkeypatch.setattr(page.backbone, "visual_positions", lambda *given, change=change: change(*own(*given)))
        assert not checks.policies_order_pruned(page).passed


def test_a_loop_that_differs_is_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    page = asked("mistral3")
    assert checks.own_logits(page).passed
    embed = page.backbone.language.embed
    monkeypatch.setattr(page.backbone.language, "embed", lambda ids: embed(ids) * 1.01)
    assert not checks.own_logits(page).passed


def test_batches_that_change_results_are_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    page = asked("llava")
    vision, score = page.backbone.vision, page.backbone.language.score

    def disturbed(batch: Sequence[Any], needs: frozenset[str]) -> list[Encoded]:
        return [replace(image, tokens=image.tokens * len(batch)) for image in vision(batch, needs)]

    def worse(prefixes: Sequence[Any]) -> Any:
        return [[one._replace(loss=one.loss + len(prefixes)) for one in each] for each in score(prefixes)]

    assert checks.image_batches(page).passed
    monkeypatch.setattr(page.backbone, "vision", disturbed)
    assert not checks.image_batches(page).passed
    assert checks.language_batches(page).passed
    monkeypatch.setattr(page.backbone.language, "score", worse)
    assert not checks.language_batches(page).passed


def test_a_prompt_that_the_processor_would_not_make_is_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    page = asked("llava_next")
    around = page.backbone._around_image
    monkeypatch.setattr(page.backbone, "_around_image", lambda text: (around(text)[0], around(text)[1][1:]))
    told = checks.own_prompt(page)
    assert told is not None
    assert not told.passed
    assert "not those that its processor makes" in told.words


def test_answers_of_different_lengths_are_told(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = YesNo.prompt

    def longer(scorer: YesNo, backbone: Backbone, probe: Any) -> Any:
        asked = prompt(scorer, backbone, probe)
        yes, no = asked.continuations
        return replace(asked, continuations=(yes, (*no, 5)))

    page = asked("llava")
    assert checks.one_token_answers(page).passed
    monkeypatch.setattr(YesNo, "prompt", longer)
    assert "not comparable" in checks.one_token_answers(page).words


def test_a_check_that_cannot_be_carried_out_has_failed(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(page: ExaminedPage) -> None:
        raise KeyError("pixel_attention_mask")

    check = run_check("own_logits", broken, asked("llava"))
    assert check is not None
    assert not check.passed
    assert check.words == "own logits: could not be tried (KeyError: 'pixel_attention_mask')"
    page = asked("qwen3vl")
    assert checks.prefix_is_shorter(page).passed
    monkeypatch.setattr("sightline.checks.doctor.checks.PRUNED", ("full",))
    assert not checks.prefix_is_shorter(page).passed


def test_a_model_that_fails_on_the_way_is_told_by_all_that_concerns(
    load: Load, page_image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone = load("llava_next")
    for method in ("score", "prefix_logits"):
        monkeypatch.setattr(backbone.language, method, Mock(side_effect=ValueError("no such head")))
    found = examined(backbone, page_image, "mine")
    failed = {check.name for check in found if "could not be tried (ValueError: no such head)" in check.words}
    assert failed == {"own_logits", "positions_pruned", "language_batches"} == {c.name for c in found if not c.passed}
    assert found.facts["stages"] == []
    assert "3 of 13 checks failed" in render(found)


def test_rows_of_a_tower_that_has_no_class_token_are_told_and_no_method_that_reads_them_stays_a_yes(
    load: Load, page_image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = examined(load("granite_vision"), page_image, "granite")
    assert right.failed == 0
    assert right.facts["selectors"]["visionzip_qwen"] == "yes"
    assert "no class token" in right.facts["selectors"]["scope"]
    assert right.facts["selectors"]["fastervlm"] == "yes, in another form", "and was run"
    monkeypatch.setattr(LlavaNext, "class_token", True)
    wrong = examined(load("granite_vision"), page_image, "granite")
    assert {check.name for check in wrong if not check.passed} == {"signal_rows", "methods"}
    for name in ("fastervlm", "visionzip_qwen", "tome"):
        assert wrong.facts["selectors"][name].startswith("no: "), name
    assert wrong.facts["selectors"]["divprune"] == "yes", "it reads nothing of the tower"


def test_a_method_that_fails_on_the_checkpoint_is_a_no_with_its_reason(
    load: Load, page_image: Image.Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Mock(side_effect=IndexError("index 100 is out of bounds"))
    monkeypatch.setattr(SELECTORS.get("divprune"), "select", broken)
    monkeypatch.setattr(SELECTORS.get("pyramiddrop"), "cut", broken)
    monkeypatch.setattr(SELECTORS.get("center"), "select", lambda selector, view, k: Selection(torch.arange(k - 1)))
    found = examined(load("llava_next"), page_image, "mine")
    (failed,) = (check for check in found if not check.passed)
    assert failed.name == "methods"
    assert sorted(failed.measured["failed"]) == ["center", "divprune", "pyramiddrop"]
    assert "IndexError: index 100 is out of bounds" in found.facts["selectors"]["divprune"]
    assert found.facts["selectors"]["center"].startswith("no: it fails here")
    assert found.facts["selectors"]["random"] == "yes"


def test_a_model_that_cannot_be_served_is_refused_by_type_and_reason(
    load: Load, page_image: Image.Image, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    backbone = load("qwen2_5_vl")
    for error in (SightlineError("its tokens have no cells"), TypeError("no such argument")):
        monkeypatch.setattr(backbone, "preprocess", Mock(side_effect=error))
        refused(str(error), encoded_page, backbone, page_image, "mine")


def test_the_page_stands_alone_and_methods_are_left_out_on_request(load: Load, page_image: Image.Image) -> None:
    found = examined(load("llava_next"), page_image, "<mine>")
    page = render(found)
    assert found.seen is not None
    assert found.seen.lit is not None
    assert page.count("<title>token ") == 2 * len(found.seen.cells)
    assert page.count("data:image/jpeg;base64,") == 2
    assert "Doctor: &lt;mine&gt;" in page
    assert "<mine>" not in page
    assert "prefers-color-scheme: dark" in page
    assert all(check.name in found.as_dict()["checks"] for check in found)
    assert page.replace("http://www.w3.org/2000/svg", "").count("http") == page.count("http-equiv")
    quick = examined(load("llava_next"), page_image, "mine", methods=False)
    assert not {"signal_rows", "methods"} & {check.name for check in quick}
    assert quick.facts["selectors"]["divprune"] == "yes"


def test_figures_that_json_has_no_word_for_become_null(load: Load, page_image: Image.Image) -> None:
    backbone = load("llava")
    with torch.no_grad():
        backbone.model.lm_head.weight.fill_(float("nan"))
    found = examined(backbone, page_image, "nan")
    assert found.failed >= 2
    said = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert said["checks"]["own_logits"]["measured"]["difference"] is None
    assert said["checks"]["own_logits"]["passed"] is False
