"""On a GPU: pixel values equal the host's to the bit, are made without waiting, and can be captured and replayed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.backbones.base import Backbone
from sightline.cost.request import Request
from sightline.cost.subject import Subject
from sightline.engine.graphs import capture

SIZES = ((640, 480), (480, 640), (896, 896), (37, 41), (1000, 333))


@pytest.fixture(scope="module", params=["tiny-qwen3-vl", "tiny-llava", "tiny-internvl"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return Subject.of(Request("prefill", config=request.param, device="cuda", dtype="float32")).backbone


def picture(size: tuple[int, int], seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("tensor_resize", [False, True])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_values_are_the_hosts_and_nothing_waits(backbone: Backbone, size: tuple[int, int], tensor_resize: bool) -> None:
    plain = backbone.options
    try:
        backbone.options = replace(plain, tensor_resize=tensor_resize)
        backbone._normalisers.clear()
        pixels = backbone.preprocess(picture(size))
        assert pixels.data.dtype == torch.uint8 and pixels.data.is_pinned()
        expected = backbone.pixel_values(pixels.data)
        backbone.tower_inputs([pixels])  # makes the tables
        with no_waiting():
            ours = backbone.tower_inputs([pixels])
        assert ours.is_cuda and torch.equal(ours.cpu(), expected)
    finally:
        backbone.options = plain
        backbone._normalisers.clear()


@torch.inference_mode()
def test_a_captured_pipeline_serves_other_pictures_of_the_size(backbone: Backbone) -> None:
    first, other = (backbone.preprocess(picture((640, 480), seed)).data for seed in (0, 1))
    held = first.to("cuda")
    prepare = backbone.preparing(held)
    replay, _ = capture(lambda: prepare(held), held.device)
    for data in (first, other):
        held.copy_(data, non_blocking=True)
        assert torch.equal(replay().cpu(), backbone.pixel_values(data))
