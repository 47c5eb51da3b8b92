"""On a GPU: pixel values equal the host's to the bit, are made without waiting, and can be captured and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.backbones.base import Backbone
from sightline.backbones.internvl import InternVLOptions
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.device.graphs import capture
from tests.towered import towered

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


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_are_the_hosts_and_nothing_waits(backbone: Backbone, size: tuple[int, int]) -> None:
    pixels = backbone.preprocess(image(size))
    assert pixels.data.dtype == torch.uint8
    assert pixels.data.is_pinned()
    towered(backbone).tower_inputs([pixels])  # makes the tables
    with no_waiting():
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
