"""What stands in for torchvision resizes as PIL does, to a grey level, and leaves nothing behind."""

from importlib.util import find_spec

import numpy as np
import pytest
import torch
from PIL import Image
from transformers.utils import is_torchvision_available

from tests.unit.backbones.named import photograph
from tests.zoo.stand_ins import InterpolationMode, needed, pad, pil_to_tensor, resize, stood_in_for


def test_a_resized_picture_is_that_of_pil() -> None:
    image = photograph().point(lambda level: 64 + level // 2)  # PIL cuts what overshoots between its two steps
    for how in ("BILINEAR", "BICUBIC"):
        for size in ((64, 50), (300, 260)):
            theirs = np.array(image.resize(size, Image.Resampling[how])).astype(int)
            ours = resize(pil_to_tensor(image), size[::-1], InterpolationMode[how]).permute(1, 2, 0).numpy()
            assert np.abs(ours.astype(int) - theirs).max() <= 1


def test_padding_lies_where_it_is_said() -> None:
    ones = torch.ones(3, 2, 2)
    padded = pad(ones, [1, 2, 3, 4], fill=[5, 6, 7])
    assert padded.shape == (3, 8, 6)
    assert torch.equal(padded[:, 2:4, 1:3], ones)
    assert padded[:, 0, 0].tolist() == [5, 6, 7]


@pytest.mark.skipif(find_spec("torchvision") is not None, reason="torchvision is installed")
def test_it_is_there_for_a_type_that_needs_it_and_gone_afterwards() -> None:
    assert needed("llama4") == ["torchvision"]
    assert needed("gemma3n") == ["torchvision", "timm"]
    assert needed("llava") == []
    with stood_in_for("llama4"):
        assert is_torchvision_available()
    assert not is_torchvision_available()
    assert find_spec("torchvision") is None
    with stood_in_for("llava"):
        assert find_spec("torchvision") is None
