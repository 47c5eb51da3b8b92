"""Compiled and captured execution on a GPU, pixels prepared there, and memory that runs out."""

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image

from sightline import Selection
from sightline.answering.materialise import materialise
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.auditing.loop import encode_all
from sightline.backbones import Backbone
from sightline.backbones.execution import CapturedVision, Execution, use_execution, use_vision_execution
from sightline.backbones.internvl import InternVLOptions
from sightline.core.prefix import Prefix
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.graphs import capture
from tests.answers import score_arm
from tests.gpu.conftest import forbidden_to_wait
from tests.towered import towered

# On a GPU: compiled and captured layers give the eager answers, and a captured graph can be replayed in any order.


TINY = ("tiny-qwen3-vl", "tiny-llava", "tiny-internvl")


@pytest.fixture(scope="module", params=TINY)
def subject(request: pytest.FixtureRequest) -> Subject:
    return Subject.of(Request("prefill", config=request.param, device="cuda", dtype="float32"))


@pytest.fixture(scope="module")
def prefixes(subject: Subject) -> list[Prefix]:
    (encoded,) = subject.backbone.encode([subject.backbone.preprocess(subject.image(0))])
    chosen = [torch.arange(0, encoded.n, step, device="cuda") for step in (1, 2, 3, 5)]
    prompt = YesNo().prompt(subject.backbone, subject.probe(0))
    return [materialise(subject.backbone, encoded, prompt, Selection(anchors), "preserve") for anchors in chosen]


@pytest.mark.parametrize("mode", ["compiled", "graph"])
def test_a_mode_changes_no_answer(subject: Subject, prefixes: list[Prefix], mode: str) -> None:
    language = subject.backbone.language
    use_execution(language, "eager")
    expected = language.score(prefixes)
    use_execution(language, mode, dynamic=True)  # as an audit does: one code for all lengths
    together = language.score(prefixes)
    forwards = [language.score([prefix])[0] for prefix in prefixes]
    backwards = [language.score([prefix])[0] for prefix in prefixes[::-1]][::-1]
    use_execution(language, "eager")
    for answers in (together, forwards, backwards):
        for ours, plain in zip(answers, expected, strict=True):
            for mine, other in zip(ours, plain, strict=True):
                assert mine.loss == pytest.approx(other.loss, abs=2e-3)
    assert [a[0].loss for a in forwards] == [a[0].loss for a in backwards]


def test_the_vision_tower_gives_the_same_tokens(subject: Subject) -> None:
    backbone = subject.backbone
    pixels = [backbone.preprocess(subject.image(i)) for i in range(2)]
    expected = [backbone.encode([item])[0] for item in pixels]
    use_vision_execution(backbone, Execution("graph"), dynamic=False)
    compiled = backbone.encode(pixels)
    see = CapturedVision(towered(backbone), pixels[0], frozenset())
    for index, (item, plain) in enumerate(zip(pixels, expected, strict=True)):
        for ours in (compiled[index], see(item)):
            assert torch.allclose(ours.tokens, plain.tokens, atol=1e-3)
            for level, same in zip(ours.deepstack, plain.deepstack, strict=True):
                assert torch.allclose(level, same, atol=1e-3)
    use_vision_execution(backbone, Execution("eager"))


# On a GPU: pixel values equal the host's to the bit, are made without waiting, and can be captured and replayed.


SIZES = ((640, 480), (480, 640), (896, 896), (37, 41), (1000, 333))


WAYS = {
    "qwen3-vl": ("tiny-qwen3-vl", None),
    "llava": ("tiny-llava", None),
    "internvl": ("tiny-internvl", None),
    "internvl-tensors": ("tiny-internvl", InternVLOptions(tensor_resize=True)),
}


@pytest.fixture(scope="module", params=sorted(WAYS))
def backbone(request: pytest.FixtureRequest) -> Backbone:
    config, options = WAYS[request.param]
    made = Subject.of(Request("prefill", config=config, device="cuda", dtype="float32")).backbone
    made.options = options or made.options
    return made


def image(size: tuple[int, int], seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_are_the_hosts_and_nothing_waits(backbone: Backbone, size: tuple[int, int]) -> None:
    pixels = backbone.preprocess(image(size))
    assert pixels.data.dtype == torch.uint8
    assert pixels.data.is_pinned()
    towered(backbone).tower_inputs([pixels])  # makes the tables
    with forbidden_to_wait():
        ours = towered(backbone).tower_inputs([pixels])
    assert ours.is_cuda
    assert torch.equal(ours.cpu(), towered(backbone).pixel_values(pixels.data))


@torch.inference_mode()
def test_a_captured_pipeline_serves_other_images_of_the_size(backbone: Backbone) -> None:
    first, other = (backbone.preprocess(image((640, 480), seed)).data for seed in (0, 1))
    held = first.to("cuda")
    prepare = towered(backbone).preparing(held)
    replay, _ = capture(lambda: prepare(held), held.device)
    for data in (first, other):
        held.copy_(data, non_blocking=True)
        assert torch.equal(replay().cpu(), towered(backbone).pixel_values(data))


# Memory that really runs out: the allocator is given less than a batch needs.


CUDA = torch.device("cuda")
PROBES = 512


@pytest.fixture
def _all_memory_afterwards() -> Iterator[None]:
    yield
    torch.cuda.set_per_process_memory_fraction(1.0)
    torch.cuda.empty_cache()


@pytest.mark.usefixtures("_all_memory_afterwards")
def test_a_batch_that_does_not_fit_is_scored_in_parts() -> None:
    subject = Subject.of(Request("prefill", config="tiny-llava", device="cuda", dtype="float32"))
    backbone, arm = subject.backbone, parse_arm("full")
    (image,) = encode_all(backbone, [backbone.preprocess(subject.image(0))])
    images, probes = [image] * PROBES, [subject.probe(0, number) for number in range(PROBES)]
    score_arm(subject.step, arm, probes[:2], images[:2], "preserve", 10**9)  # libraries set up their workspaces
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    torch.cuda.reset_peak_memory_stats()
    plenty = score_arm(subject.step, arm, probes, images, "preserve", 10**9)
    needed = torch.cuda.max_memory_reserved() - before
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + needed // 3
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.get_device_properties(CUDA).total_memory)
    scarce = score_arm(subject.step, arm, probes, images, "preserve", 10**9)
    assert backbone.limits["tokens"].most < float("inf")
    for ours, other in zip(scarce, plenty, strict=True):
        assert ours.answer.loss_yes == pytest.approx(other.answer.loss_yes, abs=1e-4)
        assert (ours.anchors == other.anchors).all()
