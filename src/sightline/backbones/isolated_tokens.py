"""A vision tower in which tokens do not mix: attention says nothing, so that each token shows where it comes from.

Attention modules answer zeros. A transformer block then does to every token the same, whatever the others are, and
whether that is so is tried out on the first block of its kind: noise on half of the tokens must leave the other half as
it was, to the bit. Such a block changes nothing about where tokens come from and is stepped over, which leaves little
more of a tower than its patch embedding and its projector. A block that fails the trial runs as it is.

Only ``forward`` of single modules is replaced, and put back when the context ends. No class is touched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

ATTENTION = re.compile(r"(attention|attn)\d*$", re.IGNORECASE)
"""How the class or the attribute of an attention module ends."""


@contextmanager
def silenced(tower: nn.Module) -> Iterator[None]:
    """Within this context tokens of ``tower`` do not attend to each other, nor to anything else."""
    attention = _attention_modules(tower)
    known: dict[Any, Any] = {}
    blocks = [tower.get_submodule(name) for name in map(_block_name, attention) if name is not None]
    forwards: dict[nn.Module, Callable[..., Any]] = {block: _SteppedOver(block, known) for block in blocks}
    forwards.update({module: _Silent(module.forward) for module in attention.values()})
    own = {module: module.__dict__.get("forward") for module in forwards}
    try:
        for module, forward in forwards.items():
            module.forward = forward
        yield
    finally:
        for module, before in own.items():
            del module.forward
            if before is not None:
                module.forward = before


def _attention_modules(tower: nn.Module) -> dict[str, nn.Module]:
    """By name. Of nested ones the innermost: an outer one may hold the residual connection too."""
    found = {
        name: module
        for name, module in tower.named_modules()
        if any(map(ATTENTION.search, (type(module).__name__, name))) and "Norm" not in type(module).__name__
    }
    return {
        name: module
        for name, module in found.items()
        if not any(other.startswith(f"{name}." if name else "") and other != name for other in found)
    }


def _block_name(name: str) -> str | None:
    """The numbered module around an attention module: an element of the tower's list of layers."""
    parts = name.split(".")
    numbered = [place for place, part in enumerate(parts[:-1]) if part.isdigit()]
    return ".".join(parts[: numbered[-1] + 1]) if numbered else None


class _Silent:
    """Zeros in the form of what the module answers; it is asked once for each form of input."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self.forward = forward
        self.answers: dict[Any, Any] = {}

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        form = tuple(tuple(tensor.shape) for tensor in _tensors((*arguments, *named.values())))
        if form not in self.answers:
            with torch.no_grad():
                self.answers[form] = _mapped(torch.zeros_like, self.forward(*arguments, **named))
        return self.answers[form]


class _SteppedOver:
    """A block that hands on what it is given, if it is one that treats every token for itself."""

    def __init__(self, block: nn.Module, known: dict[Any, Any]) -> None:
        self.block = block
        self.forward = block.forward
        self.known = known
        """By kind of block and shape of input, what stands behind the states in its answer; None: it has to run."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        states = states_of(arguments, named)
        if states is None:
            return self.forward(*arguments, **named)

        def run(changed: Tensor) -> Any:
            replaced, renamed = with_states(changed, arguments, named)
            return self.forward(*replaced, **renamed)

        kind = (type(self.block), repr(self.block), states.shape)
        if kind not in self.known:
            with torch.no_grad():
                answer = run(states)
                self.known[kind] = answer if _each_for_itself(run, states, first_tensor(answer)) else None
        answer = self.known[kind]
        if answer is None:
            return self.forward(*arguments, **named)
        return states if isinstance(answer, Tensor) else type(answer)([states, *answer[1:]])


def _each_for_itself(run: Callable[[Tensor], Any], states: Tensor, expected: Tensor) -> bool:
    """Whether the answer has the form of the states and depends, at every position, on the state there alone."""
    if expected.shape != states.shape:
        return False
    generator = torch.Generator().manual_seed(0)
    chosen = (torch.rand(states.shape[:-1], generator=generator) < 0.5).to(states.device)
    noise = torch.randn(states.shape, generator=generator).to(states)
    for changed in (chosen, ~chosen):
        seen = first_tensor(run(torch.where(changed[..., None], states + noise, states)))
        if not torch.equal(seen[~changed], expected[~changed]):
            return False
    return True


def states_of(arguments: tuple[Any, ...], named: dict[str, Any]) -> Tensor | None:
    """The hidden states (..., S, C) among what a block is called with: its first tensor of numbers."""
    tensors = (value for value in (*arguments, *named.values()) if isinstance(value, Tensor))
    return next((value for value in tensors if value.is_floating_point() and value.dim() >= 2), None)


def with_states(
    changed: Tensor, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same call with other hidden states."""
    states = states_of(arguments, named)
    return (
        tuple(changed if value is states else value for value in arguments),
        {name: changed if value is states else value for name, value in named.items()},
    )


def first_tensor(answer: Any) -> Tensor:
    """The states in what a block answers, which may be a tuple."""
    tensor: Tensor = next(_tensors([answer]))
    return tensor


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from _tensors(value)


def _mapped(function: Callable[[Tensor], Tensor], answer: Any) -> Any:
    """The function applied to every tensor of an answer; what is no tensor stays."""
    if isinstance(answer, Tensor):
        return function(answer)
    if isinstance(answer, (tuple, list)):
        return type(answer)(_mapped(function, part) for part in answer)
    return answer


# Convolutions that read what stands around a place, as if they read the place alone.
#
# Where a tower mixes by convolutions as others do by attention, a few of them make every token read half of the image.
# Yet a kernel of k taps, d apart, with stride s and p samples of padding has a place of its own: output i comes from
# inputs i s to i s + s - 1, which are those of the taps t with 0 <= t d - p < s. The others are set to zero; gates that
# look at a whole feature map are stepped over.

GATE = re.compile(r"SqueezeExcit|SEModule|SELayer")
"""What classes are called that weigh channels by their mean over all places."""


@contextmanager
def in_place(tower: nn.Module) -> Iterator[None]:
    """Within this context convolutions of ``tower`` do not mix places, nor do gates."""
    parts = list(tower.modules())
    convolutions = [part for part in parts if isinstance(part, nn.Conv2d) and part.kernel_size != part.stride]
    gates = [part for part in parts if GATE.search(type(part).__name__) and "forward" not in vars(part)]
    weights = [convolution.weight for convolution in convolutions]
    hooks = [part.register_forward_hook(_even_gradient) for part in parts]
    try:
        for convolution in convolutions:
            convolution.weight = nn.Parameter(_own_taps(convolution), requires_grad=False)
        for gate in gates:
            gate.forward = lambda states, *given, **named: states
        yield
    finally:
        for convolution, weight in zip(convolutions, weights, strict=True):
            convolution.weight = weight
        for gate in gates:
            del gate.forward
        for hook in hooks:
            hook.remove()


def _even_gradient(module: nn.Module, given: Any, made: Any) -> None:
    """On a CPU some gradients of feature maps come out wrong where the gradient behind them is not contiguous."""
    if isinstance(made, Tensor) and made.requires_grad:
        made.register_hook(lambda gradient: gradient.contiguous())  # type: ignore[no-untyped-call]


def _own_taps(convolution: nn.Conv2d) -> Tensor:
    """Its weights, zero but for the taps of a place's own. Padding that is not said is put there by somebody else."""
    kept = convolution.weight.detach().clone()
    for axis, (taps, stride, apart) in enumerate(
        zip(convolution.kernel_size, convolution.stride, convolution.dilation, strict=True)
    ):
        said = 0 if isinstance(convolution.padding, str) else convolution.padding[axis]
        padded = said or (apart * (taps - 1) + 1 - stride) // 2
        offsets = torch.arange(taps, device=kept.device) * apart - padded
        shape = [1, 1, 1, 1]
        shape[2 + axis] = taps
        kept *= ((offsets >= 0) & (offsets < stride)).view(shape)
    return kept


# Convolutions whose stride is their size, as the matrix products that they are.
#
# Patch embeddings are such convolutions. Kernels for convolutions can be slow for them, in half precision and three
# dimensions by a factor of hundreds; kernels for products are not. Equal up to rounding. Only ``forward`` of single
# modules is replaced, and put back when the context ends.


@contextmanager
def by_products(model: nn.Module) -> Iterator[None]:
    """While open, convolutions of ``model`` that cut their input into patches run as matrix products."""
    cutting = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Conv3d) and _cuts(part)]
    for convolution in cutting:
        convolution.forward = partial(patch_products, convolution)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for convolution in cutting:
            del convolution.forward


def _cuts(convolution: nn.Conv2d | nn.Conv3d) -> bool:
    axes = len(convolution.kernel_size)
    return (
        convolution.kernel_size == convolution.stride
        and convolution.padding in ("valid", (0,) * axes)
        and convolution.dilation == (1,) * axes
        and convolution.groups == 1
        and "forward" not in vars(convolution)
    )


def patch_products(convolution: nn.Conv2d | nn.Conv3d, values: Tensor) -> Tensor:
    """(B, C, *sizes) -> (B, E, *patches), what does not fill a patch left out as the convolution does."""
    sizes = convolution.kernel_size
    batched = values if values.dim() == len(sizes) + 2 else values[None]
    counts = [side // size for side, size in zip(batched.shape[2:], sizes, strict=True)]
    for axis, (count, size) in enumerate(zip(counts, sizes, strict=True), start=2):
        batched = batched.narrow(axis, 0, count * size)
    split = batched.reshape(
        batched.shape[0], batched.shape[1], *(n for pair in zip(counts, sizes, strict=True) for n in pair)
    )
    axes = range(len(sizes))
    rows = split.permute(0, *(2 + 2 * axis for axis in axes), 1, *(3 + 2 * axis for axis in axes))
    made = linear(rows.flatten(1 + len(sizes)), convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)
    return made if values.dim() == len(sizes) + 2 else made[0]
