"""On a GPU: sequences continued side by side say what each says alone, whoever their neighbours are."""

from __future__ import annotations

import pytest
import torch

from sightline.arms.arm import parse_arm
from sightline.backbones.attention import LayerSlots, library_slotted
from sightline.backbones.decoding import Decoder
from sightline.backbones.execution import use_execution
from sightline.core.prefix import Prefix
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.kernels import slot_attention

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
    held = LayerSlots(drawn(batch, shared, room, width), drawn(batch, shared, room, width), lengths)
    ours = slot_attention(query, key, value, *held, width**-0.5)
    exact = LayerSlots(held.keys.double(), held.values.double(), lengths)
    wanted = library_slotted(query.double(), key.double(), value.double(), exact, width**-0.5)
    library = library_slotted(query, key, value, held, width**-0.5)
    assert (ours.double() - wanted).abs().max() <= 1.1 * (library.double() - wanted).abs().max() + 2e-3
