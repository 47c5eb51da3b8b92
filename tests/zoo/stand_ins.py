"""torchvision and timm where they are not installed: the few operators that image processors call, and a small tower.

Types whose image processor has no PIL form, or whose tower is one of timm's, could not be loaded at all without them.
Resizing is torch's own interpolation with antialiasing, which torchvision calls as well; of timm there is no
architecture but one that looks at patches and their neighbours.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional


class InterpolationMode(Enum):
    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


def pil_to_tensor(image: Image.Image) -> Tensor:
    """(C, H, W) uint8."""
    pixels = np.array(image)
    return torch.from_numpy(pixels if pixels.ndim == 3 else pixels[:, :, None]).permute(2, 0, 1).contiguous()


def resize(
    image: Tensor,
    size: Sequence[int],
    interpolation: InterpolationMode | int = InterpolationMode.BILINEAR,
    max_size: int | None = None,
    antialias: bool = True,
) -> Tensor:
    if isinstance(interpolation, int):
        interpolation = InterpolationMode[Image.Resampling(interpolation).name]
    smooth = interpolation in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    whole = image.float().reshape(-1, *image.shape[-3:])
    small = functional.interpolate(whole, tuple(size), mode=interpolation.value, antialias=antialias and smooth)
    small = small.reshape(*image.shape[:-2], *size)
    return small.round().clamp(0, 255).to(torch.uint8) if image.dtype == torch.uint8 else small.to(image.dtype)


def pad(image: Tensor, padding: Sequence[int], fill: Any = 0, padding_mode: str = "constant") -> Tensor:
    left, top, right, bottom = padding
    if padding_mode != "constant":
        return functional.pad(image, (left, right, top, bottom), mode=padding_mode)
    fills = torch.as_tensor(fill if isinstance(fill, Sequence) else [fill], dtype=image.dtype)
    shape = (*image.shape[:-2], image.shape[-2] + top + bottom, image.shape[-1] + left + right)
    padded = fills[:, None, None].expand(shape).clone()
    padded[..., top : top + image.shape[-2], left : left + image.shape[-1]] = image
    return padded


def crop(image: Tensor, top: int, left: int, height: int, width: int) -> Tensor:
    return image[..., top : top + height, left : left + width]


def normalize(image: Tensor, mean: Any, std: Any, inplace: bool = False) -> Tensor:
    mean, std = (torch.as_tensor(each, dtype=image.dtype).view(-1, 1, 1) for each in (mean, std))
    return (image - mean) / std


class SEModule(nn.Module):
    """Channels weighed by what all places have of them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weigh = nn.Conv2d(width, width, 1)

    def forward(self, states: Tensor) -> Tensor:
        return states * torch.sigmoid(self.weigh(states.mean((2, 3), keepdim=True)))


class Tower(nn.Module):
    """(B, 3, H, W) -> (B, width, H / stride, W / stride): patches, then twice what stands around them.

    As published convolutional towers do, patches overlap, every token ends up reading most of the image, and a gate
    looks at all of it. ``in_rows``: (B, 1 + patches, width) as of a transformer, a class token first and no more than
    neighbours looked at.
    """

    def __init__(self, width: int, stride: int, in_rows: bool) -> None:
        super().__init__()
        self.in_rows = in_rows
        overlap = 0 if in_rows else stride // 2
        self.patches = nn.Conv2d(3, width, stride + 2 * overlap, stride, padding=overlap)
        taps = 3 if in_rows else 7
        self.blocks = nn.ModuleList(nn.Conv2d(width, width, taps, padding=taps // 2) for _ in range(2))
        self.gate = nn.Identity() if in_rows else SEModule(width)

    def forward_features(self, pixel_values: Tensor) -> Tensor:
        states: Tensor = self.patches(pixel_values)
        for block in self.blocks:
            states = states + functional.gelu(block(states))
        states = self.gate(states)
        if not self.in_rows:
            return states
        rows = states.flatten(2).transpose(1, 2)
        return torch.cat([rows.mean(dim=1, keepdim=True), rows], dim=1)

    def forward_head(self, states: Tensor) -> Tensor:
        return states.flatten(2).mean(dim=-1)


def create_model(architecture: str, *, embed_dim: int = 32, patch_size: int = 16, **settings: Any) -> Tower:
    return Tower(embed_dim, patch_size, architecture.startswith("vit"))


OPERATORS = (InterpolationMode, pil_to_tensor, resize, pad, crop, normalize)
PACKAGES: dict[str, dict[str, Any]] = {
    "torchvision": {"__version__": "0.26"},
    **{
        f"torchvision.{name}": {each.__name__: each for each in OPERATORS}
        for name in ("transforms", "transforms.functional", "transforms.v2", "transforms.v2.functional")
    },
    "torchvision.io": {"ImageReadMode": None, "decode_image": None},
    "timm": {"__version__": "1.0", "create_model": create_model},
    "timm.data": {"ImageNetInfo": None, "infer_imagenet_subset": lambda settings: None},
}
TAKEN = {
    "image_processing_backends": {"tvF": "torchvision.transforms.v2.functional"},
    "image_processing_utils": {"tvF": "torchvision.transforms.v2.functional"},
    "models.timm_wrapper.modeling_timm_wrapper": {"timm": "timm"},
    "models.timm_wrapper.configuration_timm_wrapper": {"infer_imagenet_subset": "timm.data"},
    "models.gemma3n.configuration_gemma3n": {"infer_imagenet_subset": "timm.data"},
}
"""Modules of transformers that may have been imported when there was nothing to take from either package."""
OF_TIMM = ("fast_vlm", "gemma3n", "perception_lm")


def needed(model_type: str) -> list[str]:
    """Packages without which a type cannot be loaded: its image processor has no PIL form, its tower is timm's."""
    from transformers.models.auto.image_processing_auto import IMAGE_PROCESSOR_MAPPING_NAMES as KNOWN

    torchvision = model_type in KNOWN and not KNOWN[model_type].get("pil")
    of_timm = model_type in OF_TIMM  # which newer transformers takes for missing where torchvision is
    return ["torchvision"] * (torchvision or of_timm) + ["timm"] * of_timm


@contextmanager
def stood_in_for(model_type: str) -> Iterator[None]:
    """Inside, what a type needs can be imported; where it is installed, or nothing is needed, nothing changes."""
    missing = [name for name in needed(model_type) if find_spec(name) is None]
    made = {name: ModuleType(name) for name in PACKAGES if name.partition(".")[0] in missing}
    for name, module in made.items():
        vars(module).update(PACKAGES[name], __spec__=ModuleSpec(name, None, is_package=True), __path__=[])
        package, _, last = name.rpartition(".")
        if package:
            setattr(made[package], last, module)
    sys.modules.update(made)
    try:
        _tell_transformers(made)
        yield
    finally:
        for name in made:
            del sys.modules[name]
        _forget()


def _tell_transformers(made: dict[str, ModuleType]) -> None:
    """What was imported before is handed what it would have taken."""
    from importlib import import_module

    from transformers import image_processing_backends, image_utils

    _forget()
    for place, names in TAKEN.items():
        module = import_module(f"transformers.{place}")
        for name, source in names.items():
            if source in made:
                setattr(module, name, made[source] if name in ("tvF", "timm") else getattr(made[source], name))
    if "torchvision" in made:
        modes = {
            getattr(Image.Resampling, name): getattr(InterpolationMode, "NEAREST_EXACT" if name == "NEAREST" else name)
            for name in ("NEAREST", "BOX", "BILINEAR", "HAMMING", "BICUBIC", "LANCZOS")
        }
        image_utils.pil_torch_interpolation_mapping.update(modes)
        image_processing_backends.pil_torch_interpolation_mapping = image_utils.pil_torch_interpolation_mapping
        image_utils.torch_pil_interpolation_mapping.update({mode: how for how, mode in modes.items()})
        image_utils.InterpolationMode, image_utils.pil_to_tensor = InterpolationMode, pil_to_tensor


def _forget() -> None:
    """What transformers remembers of which packages there are."""
    from transformers.utils import import_utils

    for name in ("torchvision_available", "torchvision_v2_available", "torchvision_greater_or_equal", "timm_available"):
        getattr(import_utils, f"is_{name}").cache_clear()
