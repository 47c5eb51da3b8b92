"""What is promised for every architecture with a file of its own: cells, logits, positions, every method on each."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import SelectStep, all_needs, materialise
from sightline.answering.scorers.spoken import Generation
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import model_inputs, model_logits
from sightline.backbones.clip import ClipSpace
from sightline.backbones.general import General
from sightline.core.prefix import Encoded
from sightline.core.selection import Budget, PositionPolicy, Selection
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from tests.answers import Scored, score_arm
from tests.contract.cast import SHALLOW, probe, refusal
from tests.unit.backbones.named import TYPES as DECLARING
from tests.unit.backbones.named import general, photograph

# What is promised for every architecture with a file of its own, on tiny checkpoints of its published form.


TYPES = ("qwen2_vl", "qwen2_5_vl", "glm4v", "glm46v", "glm_ocr", "internvl")
SIZES = [(96, 64), (300, 200), (64, 400), (20, 30), (500, 33), (900, 700)]
"""(width, height): small, wide, tall, tiny, a strip, large."""
POLICIES: tuple[PositionPolicy, ...] = ("preserve", "compact")
QUESTION = "Is the word EXIT visible in the image?"
PROBES = [
    probe("one", QUESTION, "EXIT", ((0.2, 0.2, 0.4, 0.3), (0.6, 0.5, 0.8, 0.7))),
    probe("two", "Can you read 'Grand Hotel' anywhere? Yes or no.", "Grand Hotel", ((0.1, 0.6, 0.3, 0.65),)),
]
IMAGES = ((200, 130), (90, 170))


@pytest.fixture(scope="module", params=TYPES)
def backbone(request: pytest.FixtureRequest, zoo: Callable[[str], Path]) -> Backbone:
    return load_backbone(str(zoo(request.param)), dtype="float32", device="cpu")


@pytest.fixture(scope="module")
def encoded(backbone: Backbone) -> list[Encoded]:
    served = [arm for name in SELECTORS if (arm := served_arm(backbone, name)) is not None]
    return [backbone.encode([backbone.preprocess(drawn(size))], all_needs(served))[0] for size in IMAGES]


def drawn(size: tuple[int, int]) -> Image.Image:
    width, height = size
    noise = np.random.default_rng(width).integers(0, 256, (height, width, 3))
    return Image.fromarray(noise.astype(np.uint8))


def served_arm(backbone: Backbone, name: str) -> Arm | None:
    """The method under its default arguments, with layers that a tiny tower has; None if it is refused."""
    if name == "masks":
        return None
    text = "full" if name == "full" else f"{name}:0.3" + (f":{SHALLOW[name]}" if name in SHALLOW else "")
    arm = parse_arm(text)
    try:
        SelectStep(backbone).refuse_unserved([arm])
    except SightlineError:
        return None
    return arm


def test_its_own_class_is_loaded(backbone: Backbone) -> None:
    assert type(backbone) is not General
    assert backbone.language.plain, "layers are run by our loop"


@pytest.mark.parametrize("size", SIZES)
def test_declared_cells_are_those_that_ramps_find(
    backbone: Backbone,
    size: tuple[int, int],
    zoo: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))
    folder = zoo(backbone.model.config.model_type)
    finds = General.load(
        str(folder), dtype=torch.float32, device=torch.device("cpu"), attention="sdpa", options=General.image_options()
    )
    (shown,) = backbone.encode([backbone.preprocess(drawn(size))])
    cells, sourced, layout = finds.cells(size, finds.image_inputs(drawn(size)))
    assert sourced.all()
    assert shown.separators is None
    assert shown.layout == layout
    assert (np.abs(np.clip(shown.cells, 0.0, 1.0) - cells) * np.array([*size, *size])).max() <= 1.0


def test_keep_one_gives_the_models_own_logits_under_both_policies(backbone: Backbone, encoded: list[Encoded]) -> None:
    prompt = backbone.prompt(QUESTION, "EXIT")
    for image, size in zip(encoded, IMAGES, strict=True):
        reference = model_logits(backbone, drawn(size), (*prompt.head, *prompt.tail), len(prompt.head))
        for policy in POLICIES:
            prefix = materialise(backbone, image, prompt, Selection(torch.arange(image.n)), policy)
            assert (backbone.language.prefix_logits(prefix) - reference).abs().max() <= 1e-4


@pytest.mark.parametrize("policy", POLICIES)
def test_a_pruned_prefix_is_shorter_and_its_ids_are_as_stated(
    backbone: Backbone, encoded: list[Encoded], policy: PositionPolicy
) -> None:
    """Kept are some tokens of every other row and of all columns but the first."""
    prompt, image = backbone.prompt(QUESTION, "EXIT"), encoded[0]
    rows, columns = image.layout[0]
    places = [r * columns + c for r in range(0, rows, 2) for c in range(1, columns)]
    kept = torch.tensor(places)
    prefix = materialise(backbone, image, prompt, Selection(kept), policy)
    start, end = prefix.start, prefix.start + len(kept)
    assert prefix.full_length - prefix.prompt_length == image.n - len(kept)
    assert torch.equal(prefix.embeds[start:end], image.tokens[kept])
    assert torch.isfinite(backbone.language.prefix_logits(prefix)).all()
    if backbone.axes == 1:
        expected = (kept if policy == "preserve" else torch.arange(len(kept)))[None]
        following = image.n if policy == "preserve" else len(kept)
    else:
        row, column = kept // columns, kept % columns
        row, column = (row, column) if policy == "preserve" else (row // 2, column - 1)
        expected = torch.stack([torch.zeros_like(row), row, column])
        following = max(rows, columns) if policy == "preserve" else max((rows + 1) // 2, columns - 1)
    assert torch.equal(prefix.positions[:, start:end] - start, expected)
    assert (prefix.positions[:, end] - start == following).all()


def test_alone_or_among_others_the_answer_is_the_same(backbone: Backbone, encoded: list[Encoded]) -> None:
    step = SelectStep(backbone)
    for text in ("full", "random:0.3", "divprune:0.5"):
        arm = parse_arm(text)
        batch = score_arm(step, arm, PROBES * 2, [*encoded, encoded[1], encoded[0]], "preserve", 16384)
        for scored, asked, image in zip(batch, PROBES * 2, [*encoded, encoded[1], encoded[0]], strict=True):
            (alone,) = score_arm(step, arm, [asked], [image], "preserve", 16384)
            assert np.array_equal(alone.anchors, scored.anchors)
            assert alone.answer.loss_yes == pytest.approx(scored.answer.loss_yes, abs=1e-4)
            assert alone.answer.loss_no == pytest.approx(scored.answer.loss_no, abs=1e-4)


def test_encoded_together_or_apart_tokens_are_the_same(backbone: Backbone, encoded: list[Encoded]) -> None:
    together = backbone.encode([backbone.preprocess(drawn(size)) for size in IMAGES])
    for one, other in zip(together, encoded, strict=True):
        assert (one.tokens - other.tokens).abs().max() <= 1e-4


@pytest.mark.parametrize("name", [name for name in SELECTORS if name != "masks"])
def test_a_method_runs_or_is_refused_before_it_does(backbone: Backbone, encoded: list[Encoded], name: str) -> None:
    arm = served_arm(backbone, name)
    if arm is None:
        with pytest.raises(SightlineError, match=f"{name} cannot run on {type(backbone).__name__}: "):
            SelectStep(backbone).refuse_unserved([parse_arm(f"{name}:0.3")])
        return
    images = encoded
    if arm.image_budget is not None:
        images = [backbone.encode([backbone.preprocess(drawn(size), budget=arm.image_budget)])[0] for size in IMAGES]
        assert all(small.n <= Budget.ratio(0.3).resolve(usual.n) for small, usual in zip(images, encoded, strict=True))
    scored = score_arm(SelectStep(backbone), arm, PROBES, images, backbone.paper_positions, 16384)
    for one, image in zip(scored, encoded, strict=True):
        assert np.isfinite([one.answer.loss_yes, one.answer.loss_no]).all()
        assert one.k <= arm.budget.resolve(image.n)
        assert (one.k < image.n) == (name != "full")


def test_masks_that_merge_states_of_the_tower_are_refused(backbone: Backbone, tmp_path: Path) -> None:
    file = tmp_path / "masks.jsonl"
    file.write_text('{"id": "one", "merge_at": "vision", "groups": [[0, [0, 1], [0.5, 0.5]]]}\n', encoding="utf-8")
    with pytest.raises(SightlineError, match=r"masks cannot run on .*: it merges states of the vision tower"):
        SelectStep(backbone).refuse_unserved([parse_arm(f"masks:file={file}")])


def test_an_open_answer_is_the_models_own_greedy_one(backbone: Backbone, encoded: list[Encoded]) -> None:
    passed = Answerer(backbone, Generation()).over(parse_arm("full"), PROBES, encoded)
    for i, (asked, size) in enumerate(zip(PROBES, IMAGES, strict=True)):
        prompt = Generation().prompt(backbone, asked)
        inputs: dict[str, Any] = model_inputs(backbone, drawn(size), (*prompt.head, *prompt.tail), len(prompt.head))
        with torch.inference_mode():
            found = backbone.model.generate(**inputs, do_sample=False, max_new_tokens=8)[0]
        expected = found[inputs["input_ids"].shape[1] :].tolist()
        if expected[-1] in backbone.stop_ids:
            expected.pop()
        assert backbone.language.generate(passed.prefix(i), 8, backbone.stop_ids) == expected


def test_a_budget_of_every_tiles_own(backbone: Backbone, encoded: list[Encoded]) -> None:
    arm = parse_arm("random:0.3/tile")
    for scored, image in zip(
        score_arm(SelectStep(backbone), arm, PROBES, encoded, "preserve", 16384), encoded, strict=True
    ):
        sizes = [rows * columns for rows, columns in image.layout]
        kept = [int(part.sum()) for part in np.split(scored.anchors, np.cumsum(sizes)[:-1])]
        assert kept == [arm.budget.resolve(size) for size in sizes]


def test_rows_can_have_legibility(backbone: Backbone, encoded: list[Encoded]) -> None:
    for image, size in zip(encoded, IMAGES, strict=True):
        assert image.sampling is not None
        width, height = backbone.shown_size(size)
        tiles = [rows * columns for rows, columns in image.layout]
        whole = sum(tiles[:-1]) if len(tiles) > 1 else tiles[0]
        assert image.sampling.token_pixels * whole == width * height, "tokens share the resized image among them"


def test_branches_are_scored_as_plain_forwards(backbone: Backbone, encoded: list[Encoded]) -> None:
    asked = PROBES[0]
    (scored,) = score_arm(SelectStep(backbone), parse_arm("full"), [asked], encoded[:1], "preserve", 16384)
    prompt = YesNo().prompt(backbone, asked)
    for branch, loss in zip(prompt.continuations, (scored.answer.loss_yes, scored.answer.loss_no), strict=True):
        whole = (*prompt.head, *prompt.shared, *branch)
        logits = model_logits(backbone, drawn(IMAGES[0]), whole, len(prompt.head))
        answer = (*prompt.shared, *branch)[len(prompt.tail) :]
        rows = logits[len(logits) - len(answer) - 1 : -1]
        assert loss == pytest.approx(float(torch.nn.functional.cross_entropy(rows, torch.tensor(answer))), abs=1e-4)


# Every selector on every architecture that declares its tokens for the general route: it runs, or is refused.


BATCH_TOKENS = 16384
METHODS = tuple(name for name, kind in SELECTORS.items() if name not in ("full", "masks"))
"""All that take a budget."""
ASKED = [
    probe("one", QUESTION, "EXIT", ((0.2, 0.2, 0.4, 0.3), (0.6, 0.5, 0.8, 0.7))),
    probe("two", QUESTION, "EXIT", ()),
]
CLASS_TOKEN, LANGUAGE, CLIP = "no class token", "layers of type", "not the one of a CLIP checkpoint"
REASONS = (CLASS_TOKEN, LANGUAGE, CLIP, "its processor", "which values of the prepared image")


class Stage:
    """One checkpoint with two encoded images of different sizes."""

    def __init__(self, folder: Path, clip: Path) -> None:
        self.backbone = general(folder)
        self.step = SelectStep(self.backbone, ClipSpace(str(clip), self.backbone.language.device))
        self.images = [photograph(200, 130), photograph(90, 140, seed=4)]

    def encoded(self, arm: Arm) -> list[Encoded]:
        """Once for all arms that look at the images in their usual size, as an audit does."""
        return self._seen if arm.image_budget is None else self._encode(all_needs([arm]), arm.image_budget)

    @cached_property
    def _seen(self) -> list[Encoded]:
        served = [arm for name in METHODS if not refusal(self.step, arm := arm_of(name))]
        return self._encode(all_needs(served))

    def _encode(self, needs: frozenset[str], budget: Budget | None = None) -> list[Encoded]:
        pixels = [self.backbone.preprocess(image, budget=budget) for image in self.images]
        return [self.backbone.encode([one], needs)[0] for one in pixels]

    def answers(self, arm: Arm) -> list[Scored]:
        return score_arm(self.step, arm, ASKED, self.encoded(arm), self.backbone.paper_positions, BATCH_TOKENS)


@pytest.fixture(scope="module")
def stage(zoo: Callable[[str], Path], data: Path) -> Callable[[str], Stage]:
    return cache(lambda name: Stage(zoo(name), data / "tiny" / "clip"))


def arm_of(name: str, keep: str = "0.4") -> Arm:
    return parse_arm(f"{name}:{keep}" + (f":{SHALLOW[name]}" if name in SHALLOW else ""))


@pytest.mark.parametrize("model", DECLARING)
@pytest.mark.parametrize("name", METHODS)
def test_a_method_runs_or_is_refused_in_words(stage: Callable[[str], Stage], model: str, name: str) -> None:
    here, arm = stage(model), arm_of(name)
    reason = refusal(here.step, arm)
    if reason:
        assert reason.startswith(f"{name} cannot run on {here.backbone.title}: ")
        assert any(known in reason for known in REASONS), reason
        assert "\n" not in reason
        return
    for scored in here.answers(arm):
        n = len(scored.anchors)
        k = arm.budget.resolve(n)
        assert np.isfinite([scored.answer.loss_yes, scored.answer.loss_no]).all()
        if arm.image_budget is None:
            assert scored.k == k < n
            assert scored.sequence_full - scored.sequence_pruned >= n - k
        else:
            assert scored.k == n
            assert scored.sequence_pruned < scored.sequence_full


@pytest.mark.parametrize(
    ("model", "served"),
    [
        ("llava_next", {"fastervlm", "visionzip", "prumerge", "nuwa", "cdpruner", "anchorprune", "fastv", "hiprune"}),
        ("llava_onevision", {"visionzip_qwen", "hiprune", "tome", "fastv"}),
        ("smolvlm", {"visionzip_qwen", "hiprune", "fastv", "resize"}),
        ("idefics3", {"visionzip_qwen", "hiprune", "fastv", "resize"}),
        ("gemma3", {"visionzip_qwen", "hiprune", "divprune"}),
        ("mistral3", {"visionzip_qwen", "hiprune", "fastv", "resize"}),
        ("paligemma", {"visionzip_qwen", "hiprune", "divprune"}),
    ],
)
def test_what_an_architecture_has_is_served(stage: Callable[[str], Stage], model: str, served: set[str]) -> None:
    assert {name: reason for name in served if (reason := refusal(stage(model).step, arm_of(name)))} == {}


@pytest.mark.parametrize("model", [name for name in DECLARING if name in ("llava_next", "llava_onevision", "smolvlm")])
@pytest.mark.parametrize("name", ["target", "random", "visionzip_qwen", "tome", "fastv"])
def test_every_tile_keeps_its_share(stage: Callable[[str], Stage], model: str, name: str) -> None:
    here, arm = stage(model), arm_of(name, "0.5/tile")
    images = here.encoded(arm)
    scores = score_arm(here.step, arm, ASKED, images, here.backbone.paper_positions, BATCH_TOKENS)
    for image, scored in zip(images, scores, strict=True):
        sizes = [rows * columns for rows, columns in image.layout]
        assert len(sizes) > 1
        tiles = np.split(scored.anchors, np.cumsum(sizes)[:-1])
        assert [int(tile.sum()) for tile in tiles] == [arm.budget.resolve(size) for size in sizes]
