"""On a GPU: our causal kernel gives what attention is defined to give, and takes cuDNN's place where shapes vary."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sightline.backbones.attention import branch_attention, branch_attention_by_own_kernels
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.kernels import causal_attention, planless, usable

CUDA = torch.device("cuda")
SHAPES = [
    (1, 1, 4, 4, 64),
    (2, 63, 4, 2, 64),
    (3, 64, 8, 2, 128),
    (2, 65, 32, 8, 128),
    (4, 202, 32, 8, 128),
    (1, 829, 32, 8, 128),
    (2, 621, 32, 32, 128),
    (1, 3373, 8, 1, 64),
]
needs_hopper = pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() < (9, 0), reason="needs a Hopper GPU"
)


def states(batch: int, length: int, heads: int, shared: int, width: int, dtype: torch.dtype) -> list[Tensor]:
    """Query, key and value as views of one projection, as joined projections leave them."""
    torch.manual_seed(length)
    joined = torch.randn(batch, length, heads + 2 * shared, width, device=CUDA, dtype=dtype)
    return [part.transpose(1, 2) for part in joined.split([heads, shared, shared], dim=2)]


@needs_hopper
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("batch", "length", "heads", "shared", "width"), SHAPES)
def test_the_kernel_is_causal_attention(
    batch: int, length: int, heads: int, shared: int, width: int, dtype: torch.dtype
) -> None:
    query, key, value = states(batch, length, heads, shared, width, dtype)
    ours = causal_attention(query, key, value, 0.07)
    exact = scaled_dot_product_attention(
        query.double(), key.double(), value.double(), is_causal=True, scale=0.07, enable_gqa=heads != shared
    ).transpose(1, 2)
    library = scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=0.07, enable_gqa=heads != shared
    ).transpose(1, 2)
    assert ours.shape == (batch, length, heads, width)
    # No further from the exact values than the library's kernels are, up to one rounding of the result.
    allowed = 1.5 * (library - exact).abs().max() + torch.finfo(dtype).eps * exact.abs().max()
    assert (ours - exact).abs().max() <= allowed


@needs_hopper
def test_branches_see_the_same_prefix_by_either_kernel() -> None:
    query, key, value = states(2, 210, 32, 8, 128, torch.bfloat16)
    mask = torch.zeros(2, 1, 8, 210, device=CUDA, dtype=torch.bfloat16)
    lowest = torch.finfo(torch.bfloat16).min
    mask[:, :, :4, 206:] = lowest
    mask[:, :, 4:, 202:206] = lowest
    mask[1, :, :, :70] = lowest  # a whole block and more that no row sees
    plain, _ = branch_attention(None, query, key, value, mask, 0.1)
    ours, _ = branch_attention_by_own_kernels(None, query, key, value, mask, scaling=0.1)
    again = torch.compile(branch_attention_by_own_kernels, dynamic=True)
    compiled, _ = again(None, query, key, value, mask, scaling=0.1)
    assert (ours - plain).abs().max() < 0.02
    assert (compiled - ours).abs().max() < 0.02


@needs_hopper
def test_it_takes_the_place_of_kernels_that_are_planned() -> None:
    assert not usable(CUDA, torch.bfloat16, 128)
    with planless():
        assert usable(CUDA, torch.bfloat16, 128)
        assert not usable(CUDA, torch.float32, 128)
        assert not usable(CUDA, torch.bfloat16, 72)


def test_an_answer_does_not_depend_on_who_attends() -> None:
    subject = Subject.of(Request("prefill", config="tiny-qwen3-vl", device="cuda", dtype="float32"))
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    prefix = subject.over(subject.arm("full", "eager"), [encoded]).prefix(0)
    language = subject.backbone.language
    with planless():
        without = language.generate(prefix, 8, frozenset())
    assert language.generate(prefix, 8, frozenset()) == without
