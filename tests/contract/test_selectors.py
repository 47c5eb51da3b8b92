"""Every selector on every tiny checkpoint keeps its contract, and GPU kernels choose what the CPU's loops choose."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from sightline.answering.materialise import SelectStep, salt
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones.base import UNPROJECTED
from sightline.core.selection import Budget, Selection, Selector, TokenView, TwoStages
from sightline.core.selection_rules import lineage_mask
from sightline.selectors import greedy
from sightline.selectors.greedy import spread
from sightline.selectors.mmtok import mmtok_kept
from sightline.selectors.scores import kernels_run, power_of_two, rank, relevance
from tests.answers import Scored, score_arm
from tests.contract.cast import KEEPS, METHODS, MODELS, REFUSED, SHALLOW, Stage, arm_of, refusal, servable, stage

# Every registered selector on every architecture, through the path that an audit takes.

BATCH_TOKENS = 16384
PAIRS = [
    pytest.param(model, dtype, name, id=f"{model}-{dtype}-{name}", marks=pytest.mark.xdist_group(f"{model}-{dtype}"))
    for model in MODELS
    for dtype in KEEPS
    for name in servable(model)
]
REASONS = ("class token", "not the one of a CLIP checkpoint", "single states", UNPROJECTED)


@pytest.mark.parametrize(("model", "dtype", "name"), PAIRS)
def test_selector_keeps_its_promises(data: Path, tmp_path: Path, model: str, dtype: str, name: str) -> None:
    here = stage(data, model, dtype)
    for keep in KEEPS[dtype] if name != "full" else ("1.0",):
        arm = arm_of(name, keep, here.masks(tmp_path, keep) if name == "masks" else None)
        here.step.refuse_unserved([arm])
        if arm.inside:
            check_inside(here, arm)
        else:
            check_before(here, arm)


def check_before(here: Stage, arm: Arm) -> None:
    first = [select(here, arm, i) for i in range(3)]
    for i, chosen in enumerate(first):
        n = here.encoded[i].n
        check_selection(chosen, n, arm.selector.count(here.probes[i].id, n, arm.budget))
    again = select(here, arm, 0)
    assert torch.equal(first[0].anchors, again.anchors), "two calls differ"
    assert (first[0].mix is None) == (again.mix is None)
    if first[0].mix is not None and again.mix is not None:
        assert torch.equal(first[0].mix, again.mix), "two calls mix differently"
    together = score_arm(here.step, arm, here.probes, here.encoded, "preserve", BATCH_TOKENS)
    for chosen, scored, image in zip(first, together, here.encoded, strict=True):
        assert np.array_equal(scored.lineage, lineage_mask(chosen, image.n).numpy()), "another lineage when scored"
        assert set(np.flatnonzero(scored.anchors)) == set(chosen.anchors.tolist()) - {-1}, "another choice when scored"
        check_scored(scored, len(chosen.anchors))
    check_batch(here, arm)


def check_selection(chosen: Selection, n: int, k: int) -> None:
    anchors = chosen.anchors.tolist()
    placed = [anchor for anchor in anchors if anchor >= 0]
    assert len(anchors) == k, "the budget is not respected"
    assert anchors == sorted(anchors), "not in native order"
    assert len(set(placed)) == len(placed), "a token is kept twice"
    assert all(anchor < n for anchor in placed)
    assert len(placed) >= k - 1, "more than one output without a cell"
    lineage = torch.nonzero(lineage_mask(chosen, n)).flatten().tolist()
    assert set(placed) <= set(lineage), "an anchor outside the lineage"
    if chosen.mix is not None:
        assert torch.isfinite(chosen.mix).all()
        assert bool((chosen.mix != 0).any(dim=1).all()), "an output that nothing flows into"


def check_batch(here: Stage, arm: Arm) -> None:
    """The photograph and its mirror image have equal N: together they are chosen as each alone."""
    selector: Any = here.backbone.form(arm.selector)
    if not selector.batches:
        return
    k = arm.budget.resolve(here.encoded[0].n)
    views = [view_of(here, arm, i) for i in (0, 1)]
    together = selector.select_many(views, k)
    for alone, chosen in zip((selector.select(view, k) for view in views), together, strict=True):
        assert torch.equal(chosen.anchors, alone.anchors), "the batch changes the choice"
        if alone.mix is not None:
            assert chosen.mix is not None
            assert torch.equal(chosen.mix != 0, alone.mix != 0), "the batch changes the lineage"
            torch.testing.assert_close(chosen.mix, alone.mix)


def check_inside(here: Stage, arm: Arm) -> None:
    together = score_arm(here.step, arm, here.probes, here.encoded, "preserve", BATCH_TOKENS)
    for i, scored in enumerate(together):
        n = here.encoded[i].n
        k = arm.budget.resolve(n)
        if arm.selector.budget_counts == "layers":
            apart = abs(scored.spent(arm) - k) * len(scored.k_layers)
            assert apart <= n + len(scored.k_layers), "the budget is not respected over the layers"
            k = scored.k
        check_scored(scored, k)
        assert int(scored.anchors.sum()) == k, "the budget is not respected"
        assert bool((scored.lineage | ~scored.anchors).all()), "an anchor outside the lineage"
        assert scored.k_layers is not None
        if isinstance(arm.selector, TwoStages):
            reached = arm.selector.reaching(arm.budget, len(scored.k_layers)).resolve(n)
            assert scored.k_layers[0] == reached, "the first layer must see what was selected"
        else:
            assert scored.k_layers[0] == n, "the first layer must see every token"
        assert scored.k_layers[-1] == k, "the last layer must see K tokens"
        assert scored.k_layers == sorted(scored.k_layers, reverse=True)
        (alone,) = score_arm(here.step, arm, here.probes[i : i + 1], here.encoded[i : i + 1], "preserve", BATCH_TOKENS)
        assert np.array_equal(alone.anchors, scored.anchors), "the batch changes the choice"
        assert np.array_equal(alone.lineage, scored.lineage), "the batch changes the lineage"


def check_scored(scored: Scored, k: int) -> None:
    assert scored.k == k
    assert np.isfinite([scored.answer.loss_yes, scored.answer.loss_no]).all()
    assert scored.sequence_full - scored.sequence_pruned == len(scored.anchors) - k


def select(here: Stage, arm: Arm, index: int) -> Selection:
    asked = here.probes[index]
    return here.step(here.encoded[index], here.backbone.prompt(asked.question, asked.target_text), asked, arm).selection


def view_of(here: Stage, arm: Arm, index: int) -> TokenView:
    asked, image = here.probes[index], here.encoded[index]
    selector: Any = here.backbone.form(arm.selector)
    with torch.inference_mode():
        return TokenView(
            tokens=image.tokens,
            cells=torch.from_numpy(image.cells),
            layout=image.layout,
            query=here.backbone.query(here.backbone.prompt(asked.question, asked.target_text), selector.query),
            boxes=torch.tensor(asked.visible_boxes, dtype=torch.float64).reshape(-1, 4),
            signals={name: here.step.signal(name, image, asked)[0] for name in selector.needs},
            key=salt(asked, arm),
            probe_id=asked.id,
        )


@pytest.mark.parametrize("model", MODELS)
def test_what_an_architecture_cannot_serve_is_refused_by_name(data: Path, model: str) -> None:
    for name in REFUSED[model]:
        sentence = refusal(stage(data, model, "float32").step, arm_of(name, "0.3"))
        assert sentence.startswith(f"{name} cannot run on ")
        assert any(reason in sentence for reason in REASONS), sentence
        assert "\n" not in sentence


def test_a_method_that_merges_states_of_the_tower_says_so(data: Path, tmp_path: Path) -> None:
    here = stage(data, "llava", "float32")
    for name in METHODS:
        arm = arm_of(name, "0.3", here.masks(tmp_path, "0.3") if name == "masks" else None)
        merges = False
        if not arm.inside or isinstance(arm.selector, TwoStages):
            chosen = select(here, arm, 0)
            merges = chosen.mix is not None and chosen.merge_at == "vision"
        assert arm.selector.merges_vision == merges, name


def test_every_method_runs_somewhere() -> None:
    assert set(METHODS) == set().union(*(servable(model) for model in MODELS))


@dataclass(frozen=True)
class Wants(Selector):
    """A selector with the signal names of a test."""

    needs: frozenset[str] = frozenset()

    name: ClassVar[str] = "wants"

    def select(self, view: TokenView, k: int) -> Selection:
        raise AssertionError("refused before it runs")


def test_layers_that_do_not_exist_are_refused_before_any_work(data: Path) -> None:
    step = stage(data, "llava", "float32").step
    for name, arguments in SHALLOW.items():
        sentence = refusal(step, parse_arm(f"{name}:0.3"))
        assert sentence.startswith(f"{name} cannot run on Llava: ")
        assert all(argument.partition("=")[0] in sentence for argument in arguments.split(",")), sentence


def test_a_missing_clip_checkpoint_is_asked_for(data: Path) -> None:
    step = SelectStep(stage(data, "llava", "float32").backbone, clip=None)
    for name in ("anchorprune", "cdpruner"):
        assert "--clip" in refusal(step, arm_of(name, "0.3"))


def test_misnamed_signals_are_refused_before_any_work(data: Path) -> None:
    step = stage(data, "llava", "float32").step
    for need, words in (
        ("vision.recieved@-1", "did you mean 'vision.received'?"),
        ("vision.received", "needs a layer"),
        ("vision.hidden_mean@3:2", "needs a range"),
        ("vision.hidden_mean@-1:2", "needs a range"),
        ("clip.text@3", "takes no layer"),
        ("lm.attention_last", "prune inside the language model"),
        ("depth.map", "there is no signal depth.map"),
    ):
        assert words in refusal(step, Arm(Wants(frozenset({need})), Budget.ratio(0.3), "wants:0.3"))


# GPU kernels choose what the CPU's loops choose. Most of this needs a CUDA device and Triton; planning does not.

needs_gpu = pytest.mark.skipif(
    not kernels_run(torch.empty(0, device="cuda" if torch.cuda.is_available() else "cpu"), 1),
    reason="no CUDA device with Triton here",
)


def test_programs_cover_all_tokens_and_all_run_at_once() -> None:
    for images, n, smallest in product((1, 7, 32, 132, 500), (1, 5, 64, 576, 2500, 8192), (8, 32)):
        programs, block = spread(n, images, smallest, processors=132)
        assert block == power_of_two(block)
        assert (programs - 1) * block < n <= programs * block
        assert programs == 1 or programs * images <= 132


def test_kernels_are_left_alone_on_a_cpu() -> None:
    assert not kernels_run(torch.zeros(3), 3)


def cases() -> list[tuple[Tensor, Tensor]]:
    """Similarities and weights: ordinary, with duplicates and zero tokens, with real ties."""
    drawn = torch.Generator().manual_seed(0)
    plain = torch.randn(3, 130, 32, generator=drawn)
    repeated = plain.clone()
    repeated[:, 64:] = repeated[:, :66]
    repeated[:, 7] = 0.0
    signs = torch.randint(0, 2, (3, 130, 16), generator=drawn).float() * 2 - 1
    weight = torch.rand(3, 130, generator=drawn)
    coarse = (weight * 4).round() / 4
    return [(greedy.cosines(plain), weight), (greedy.cosines(repeated), weight), (greedy.cosines(signs), coarse)]


LOOPS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "farthest": lambda s, w: greedy.farthest_greedy(
        s, w, rank(w)[:, :4], torch.tensor([4, 1, 2], device=s.device), 1.0, 80
    ),
    "cover": lambda s, w: greedy.cover_greedy(s, w, torch.zeros_like(w), 80),
    "residual": lambda s, w: greedy.residual_greedy(s, torch.ones_like(w), 0.1 * w, 30, scale=0.9, rooted=True),
    "residual from": lambda s, w: greedy.residual_greedy(s, torch.ones_like(w), 0.1 * w, 30, w.argmax(dim=1)),
}


@needs_gpu
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("case", range(3))
def test_a_kernel_makes_the_picks_of_the_cpu_loop(loop: str, case: int) -> None:
    similarity, weight = cases()[case]
    expected = LOOPS[loop](similarity, weight)
    picks = LOOPS[loop](similarity.cuda(), weight.cuda()).cpu()
    # Sixteen picks span the tokens of the last case; what residuals are left then is rounding.
    meaningful = 16 if case == 2 and loop.startswith("residual") else picks.shape[1]
    assert torch.equal(picks[:, :meaningful], expected[:, :meaningful])
    assert all(len(set(row.tolist())) == len(row) for row in picks)


@needs_gpu
@pytest.mark.parametrize("smallest", [8, 32, 1024])
def test_how_tokens_are_shared_out_changes_no_pick(smallest: int) -> None:
    similarity, weight = (part.cuda() for part in cases()[0])
    one, zero = torch.ones_like(weight).double(), torch.zeros_like(weight).double()
    picks = greedy.launch_cover(similarity, weight.double(), zero, 80, smallest)
    assert torch.equal(picks, greedy.launch_cover(similarity, weight.double(), zero, 80))
    residual = greedy.launch_residual(similarity, one, one * 1e-8, zero, 0.9, True, None, 30, smallest)
    assert torch.equal(residual, greedy.launch_residual(similarity, one, one * 1e-8, zero, 0.9, True, None, 30))


@needs_gpu
def test_coverage_of_text_and_image_leaves_out_what_is_excluded() -> None:
    drawn = torch.Generator().manual_seed(5)
    covers = [torch.rand(90, items, generator=drawn) for items in (95, 101)]
    excluded = torch.rand(2, 90, generator=drawn) < 0.2
    expected = mmtok_kept(covers, 40, excluded)
    assert torch.equal(mmtok_kept([image.cuda() for image in covers], 40, excluded.cuda()).cpu(), expected)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("texts", [1, 2, 17, 128])
def test_relevance_is_the_same_number(dtype: torch.dtype, texts: int) -> None:
    drawn = torch.Generator().manual_seed(texts)
    tokens, query = (torch.randn(count, 200, generator=drawn).to(dtype) for count in (100, texts))
    tokens[3] = 0.0
    torch.testing.assert_close(relevance(tokens.cuda(), query.cuda()).cpu(), relevance(tokens, query))
