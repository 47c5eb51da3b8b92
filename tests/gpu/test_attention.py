"""Our attention kernels on a GPU: what they compute, and answers decoded by them."""

import pytest
import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from sightline.arms import parse_arm
from sightline.backbones import attention
from sightline.backbones.decoding import Decoder
from sightline.backbones.execution import use_execution
from sightline.core.prefix import Prefix
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.kernels import causal_attention, slot_attention

# On a GPU: our causal kernel gives what attention is defined to give, and takes cuDNN's place where shapes vary.


CUDA = torch.device("cuda")
SHAPES = [
    (1, 1, 4, 4, 64), (2, 63, 4, 2, 64), (3, 64, 8, 2, 128), (2, 65, 32, 8, 128), (4, 202, 32, 8, 128),
    (1, 829, 32, 8, 128), (2, 621, 32, 32, 128), (1, 3373, 8, 1, 64),
]  # fmt: skip
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
    exact, library = (
        scaled_dot_product_attention(*each, is_causal=True, scale=0.07, enable_gqa=heads != shared).transpose(1, 2)
        for each in ((query.double(), key.double(), value.double()), (query, key, value))
    )
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
    plain, _ = attention.branch_attention(None, query, key, value, mask, 0.1)
    ours, _ = attention.branch_attention_by_own_kernels(None, query, key, value, mask, scaling=0.1)
    again = torch.compile(attention.branch_attention_by_own_kernels, dynamic=True)
    compiled, _ = again(None, query, key, value, mask, scaling=0.1)
    assert (ours - plain).abs().max() < 0.02
    assert (compiled - ours).abs().max() < 0.02


@needs_hopper
def test_it_takes_the_place_of_kernels_that_are_planned() -> None:
    assert not attention.usable(CUDA, torch.bfloat16, 128)
    with attention.without_planned_kernels():
        assert attention.usable(CUDA, torch.bfloat16, 128)
        assert not attention.usable(CUDA, torch.float32, 128)
        assert not attention.usable(CUDA, torch.bfloat16, 72)


def test_an_answer_does_not_depend_on_who_attends() -> None:
    subject = Subject.of(Request("prefill", config="tiny-qwen3-vl", device="cuda", dtype="float32"))
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    prefix = subject.over(subject.arm("full", "eager"), [encoded]).prefix(0)
    language = subject.backbone.language
    with attention.without_planned_kernels():
        without = language.generate(prefix, 8, frozenset())
    assert language.generate(prefix, 8, frozenset()) == without


# On a GPU: sequences continued side by side say what each says alone, whoever their neighbours are.


TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")
MOST = 9


def subject_of(config: str, dtype: str = "float32") -> Subject:
    return Subject.of(Request("answers", config=config, device="cuda", dtype=dtype))


def prefixes(subject: Subject, arm: str, count: int) -> list[Prefix]:
    parsed = parse_arm(arm)
    pixels = [subject.backbone.preprocess(subject.image(i)) for i in range(count)]
    images = subject.backbone.encode(pixels, parsed.selector.needs)
    passed = subject.over(parsed, images)
    return [passed.prefix(i) for i in range(count)]


@pytest.mark.parametrize("config", TINY)
@pytest.mark.parametrize("execution", ["eager", "compiled"])
def test_side_by_side_equals_one_by_one(config: str, execution: str) -> None:
    subject = subject_of(config)
    made = [*prefixes(subject, "full", 3), *prefixes(subject, "target:0.3", 4)]
    language = subject.backbone.language
    expected = [language.generate(prefix, MOST, frozenset()) for prefix in made]
    use_execution(language, execution, dynamic=True)
    decoder = Decoder(language, MOST, frozenset(), slots=4)  # fewer than prefixes: some wait for a free one
    said = [saying for part in (made[:5], made[5:]) for saying in decoder.launch(part).read()]
    assert [saying.tokens for saying in said] == expected


@pytest.mark.parametrize("config", TINY)
def test_an_answer_does_not_depend_on_its_neighbours(config: str) -> None:
    subject = subject_of(config, "bfloat16")
    made = prefixes(subject, "target:0.4", 6)
    decoder = Decoder(subject.backbone.language, MOST, frozenset(), slots=8)
    alone = [decoder.launch([prefix]).read()[0] for prefix in made]
    pending = [decoder.launch([prefix]) for prefix in made]
    together = [each.read()[0] for each in pending]
    assert [saying.tokens for saying in together] == [saying.tokens for saying in alone]
    assert [saying.loss for saying in together] == [saying.loss for saying in alone]


def test_slots_without_enough_room_are_replaced() -> None:
    subject = subject_of("tiny-qwen3-vl")
    short, long = prefixes(subject, "target:0.1", 1), prefixes(subject, "full", 1)
    language = subject.backbone.language
    decoder = Decoder(language, 400, frozenset(), slots=2)
    first = decoder.launch(short)
    second = decoder.launch(long)
    assert second.read()[0].tokens == language.generate(long[0], 400, frozenset())
    assert first.read()[0].tokens == language.generate(short[0], 400, frozenset())


@pytest.mark.parametrize(("heads", "shared", "width"), [(32, 8, 128), (32, 32, 128), (4, 2, 64)])
def test_the_kernel_attends_as_the_library_does(heads: int, shared: int, width: int) -> None:
    generator = torch.Generator("cuda").manual_seed(3)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, device="cuda", dtype=torch.float32).bfloat16()

    batch, room = 5, 300
    query, key, value = drawn(batch, heads, 1, width), drawn(batch, shared, 1, width), drawn(batch, shared, 1, width)
    lengths = torch.tensor([0, 1, 64, 299, 130], dtype=torch.int32, device="cuda")
    held = attention.LayerSlots(drawn(batch, shared, room, width), drawn(batch, shared, room, width), lengths)
    ours = slot_attention(query, key, value, *held, width**-0.5)
    exact = attention.LayerSlots(held.keys.double(), held.values.double(), lengths)
    wanted = attention.library_slotted(query.double(), key.double(), value.double(), exact, width**-0.5)
    library = attention.library_slotted(query, key, value, held, width**-0.5)
    assert (ours.double() - wanted).abs().max() <= 1.1 * (library.double() - wanted).abs().max() + 2e-3
