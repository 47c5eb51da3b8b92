"""GPU kernels choose what the CPU's loops choose. Most of this needs a CUDA device and Triton; planning does not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from sightline.selectors import greedy, kernels
from sightline.selectors.kernels import power_of_two, spread, usable
from sightline.selectors.mmtok import mmtok_kept
from sightline.selectors.scores import rank, relevance

needs_gpu = pytest.mark.skipif(
    not usable(torch.empty(0, device="cuda" if torch.cuda.is_available() else "cpu"), 1),
    reason="no CUDA device with Triton here",
)


@pytest.mark.parametrize("images", [1, 7, 32, 132, 500])
@pytest.mark.parametrize("n", [1, 5, 64, 576, 2500, 8192])
@pytest.mark.parametrize("smallest", [8, 32])
def test_programs_cover_all_tokens_and_all_run_at_once(images: int, n: int, smallest: int) -> None:
    programs, block = spread(n, images, smallest, processors=132)
    assert block == power_of_two(block)
    assert (programs - 1) * block < n <= programs * block
    assert programs == 1 or programs * images <= 132


def test_kernels_are_left_alone_on_a_cpu() -> None:
    assert not usable(torch.zeros(3), 3)


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
    picks = kernels.cover(similarity, weight.double(), zero, 80, smallest)
    assert torch.equal(picks, kernels.cover(similarity, weight.double(), zero, 80))
    residual = kernels.residual(similarity, one, one * 1e-8, zero, 0.9, True, None, 30, smallest)
    assert torch.equal(residual, kernels.residual(similarity, one, one * 1e-8, zero, 0.9, True, None, 30))


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
