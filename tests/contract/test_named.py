"""Every selector on every architecture with a file of its own beside those of tests/data: it runs, or is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from pathlib import Path

import numpy as np
import pytest

from sightline.answering.materialise import SelectStep, all_needs
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones.base import UNPROJECTED
from sightline.backbones.clip import ClipSpace
from sightline.backbones.mllama import BESIDE
from sightline.core.prefix import Encoded
from sightline.core.selection import Budget
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS
from tests.answers import Scored, score_arm
from tests.contract.cast import arm_of, probe, refusal
from tests.unit.backbones.named import QUESTION, SECOND_FORM, TYPES, architecture, photograph

BATCH_TOKENS = 16384
METHODS = tuple(name for name, kind in SELECTORS.items() if kind.needs_budget and not kind.needs_file)
"""All that take a budget."""
ASKED = [
    probe("one", QUESTION, "EXIT", ((0.2, 0.2, 0.4, 0.3), (0.6, 0.5, 0.8, 0.7))),
    probe("two", QUESTION, "EXIT", ()),
]
REASONS = (
    "no class token", "not the one of a CLIP checkpoint", UNPROJECTED, BESIDE, "each tile has its own class token",
    "its processor", "values of the prepared image", "single states of its vision tower cannot be made tokens",
    "the class token nobody says",
)  # fmt: skip


class Stage:
    """One checkpoint with two encoded images of different sizes."""

    def __init__(self, name: str, zoo: Callable[[str], Path], clip: Path) -> None:
        self.backbone = architecture(name, zoo)
        self.step = SelectStep(self.backbone, ClipSpace(str(clip), self.backbone.language.device))
        self.images = [photograph(200, 130), photograph(90, 140, seed=4)]

    def encoded(self, arm: Arm) -> list[Encoded]:
        """Once for all arms that look at the images in their usual size, as an audit does."""
        if arm.image_budget is None:
            return self._seen
        return self._encode(all_needs([arm], self.backbone), arm.image_budget)

    @cached_property
    def _seen(self) -> list[Encoded]:
        served = [arm for name in METHODS if not refusal(self.step, arm := arm_of(name, "0.5"))]
        return self._encode(all_needs(served, self.backbone))

    def _encode(self, needs: frozenset[str], budget: Budget | None = None) -> list[Encoded]:
        pixels = [self.backbone.preprocess(image, budget=budget) for image in self.images]
        return [self.backbone.encode([one], needs)[0] for one in pixels]

    def answers(self, arm: Arm) -> list[Scored]:
        return score_arm(self.step, arm, ASKED, self.encoded(arm), self.backbone.paper_positions, BATCH_TOKENS)


@pytest.fixture(scope="module")
def stage(zoo: Callable[[str], Path], data: Path) -> Callable[[str], Stage]:
    return cache(lambda name: Stage(name, zoo, data / "tiny" / "clip"))


SERVED = {
    "llava_next": {"fastervlm", "visionzip", "prumerge", "nuwa", "cdpruner", "anchorprune", "fastv", "hiprune"},
    "llava_onevision": {"visionzip_qwen", "hiprune", "tome", "fastv"},
    "smolvlm": {"visionzip_qwen", "hiprune", "fastv", "resize"},
    "idefics3": {"visionzip_qwen", "hiprune", "fastv", "resize"},
    "gemma3": {"visionzip_qwen", "hiprune", "divprune"},
    "mistral3": {"visionzip_qwen", "hiprune", "fastv", "resize"},
    "paligemma": {"visionzip_qwen", "hiprune", "divprune"},
    "mllama": {"visionzip_qwen", "hiprune", "divprune", "fastervlm", "tome", "resize"},
}
"""What is never refused, of the methods that read the tower or make images smaller."""


@pytest.mark.parametrize("model", [SECOND_FORM, *TYPES, "mllama"])
@pytest.mark.parametrize("name", METHODS)
def test_a_method_runs_or_is_refused_in_words(stage: Callable[[str], Stage], model: str, name: str) -> None:
    here, arm = stage(model), arm_of(name, "0.5")
    reason = refusal(here.step, arm)
    if reason:
        assert name not in SERVED.get(model, ())
        assert reason.startswith(f"{name} cannot run on {here.backbone.title}: ")
        assert any(known in reason for known in REASONS), reason
        assert "\n" not in reason
        return
    for scored in here.answers(arm):
        n = len(scored.anchors)
        k = arm.budget.resolve(n)
        assert np.isfinite([scored.answer.loss_yes, scored.answer.loss_no]).all()
        if arm.selector.budget_counts == "layers":
            assert 0 <= scored.k < n
            assert scored.sequence_pruned < scored.sequence_full or scored.k == 0
        elif arm.image_budget is None:
            assert scored.k == k < n
            assert scored.sequence_full - scored.sequence_pruned >= n - k
        else:
            assert scored.k == n
            beside = here.backbone.language.beside  # where rows of tiles that are not there are read as well
            assert scored.sequence_pruned < scored.sequence_full or beside


@pytest.mark.parametrize("model", [SECOND_FORM, "llava_next", "llava_onevision", "smolvlm"])
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


@pytest.mark.parametrize("model", [SECOND_FORM, "qwen2_vl", "glm4v"])
def test_masks_that_merge_in_the_tower_are_refused(stage: Callable[[str], Stage], model: str, tmp_path: Path) -> None:
    file = tmp_path / "masks.jsonl"
    file.write_text('{"id": "one", "merge_at": "vision", "groups": [[0, [0, 1], [0.5, 0.5]]]}\n', encoding="utf-8")
    with pytest.raises(SightlineError, match=r"masks cannot run on .*: it merges states of the vision tower"):
        stage(model).step.refuse_unserved([parse_arm(f"masks:file={file}")])
