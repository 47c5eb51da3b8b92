"""Draws a batch of scenes on the training device: rectangles, glyph tiles, light, rotation, blur, noise, JPEG loss."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.reader import record
from lab.scenes.compose import CANVAS

LUMINANCE_TABLE = (
    (16, 11, 10, 16, 24, 40, 51, 61),
    (12, 12, 14, 19, 26, 58, 60, 55),
    (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62),
    (18, 22, 37, 56, 68, 109, 103, 77),
    (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101),
    (72, 92, 95, 98, 112, 100, 103, 99),
)
"""Quantisation steps of luminance at JPEG quality 50 (the example table of the standard)."""
JPEG_SHARE = 0.4
CHROMINANCE_STEP = 50.0
"""One mean step for all chrominance coefficients: colour detail matters little here."""


class Plan(NamedTuple):
    """What has to be known on the host before drawing, so that drawing never waits for the device."""

    image: Tensor
    """(G,) int64, image of each glyph of the batch."""
    number: Tensor
    """(G,) int64, its place in that image's record."""
    shapes: int
    """Largest number of rectangles in an image."""


def plan(rows: Tensor, device: torch.device | str) -> Plan:
    """``rows``: (B, WIDTH) int32 records on the host."""
    image, number = (record.field(rows, "glyph") >= 0).nonzero(as_tuple=True)
    shapes = int((record.field(rows, "shapes")[..., 2] > 0).sum(1).max())
    if torch.device(device).type == "cuda":
        # A copy from pageable memory would wait for the device.
        image, number = image.pin_memory(), number.pin_memory()
    return Plan(image.to(device, non_blocking=True), number.to(device, non_blocking=True), shapes)


def draw_batch(atlas: Tensor, sample: dict[str, Tensor], what: Plan, *, degrade: bool = True) -> Tensor:
    """(B, 3, 448, 448) float pixels in 0..255.

    ``atlas``: (glyphs, T, T) uint8. ``degrade`` off leaves out noise and JPEG, the two random effects.
    """
    images = _surfaces(sample, what.shapes)
    images = _glyphs(atlas, sample, what, images)
    angle, light_x, light_y, blur, noise = sample["effects"].unbind(1)
    axis = torch.linspace(-1.0, 1.0, CANVAS, device=images.device)
    ramp = light_x[:, None, None] * axis[None, None, :] + light_y[:, None, None] * axis[None, :, None]
    images = (images + ramp[:, None]).clamp_(0, 255)
    images = _rotate(images, angle)
    share = blur[:, None, None, None]
    images = images * (1 - share) + F.avg_pool2d(F.pad(images, (1, 1, 1, 1), mode="replicate"), 3, 1) * share
    if degrade:
        grain = torch.randn(images.shape[0], 1, CANVAS, CANVAS, device=images.device)
        images = (images + grain * noise[:, None, None, None]).clamp_(0, 255)
        # Scenes of a batch are in no order, so the first ones are as good a sample as any.
        count = round(JPEG_SHARE * len(images))
        quality = 70 + 25 * torch.rand(count, device=images.device)
        images = torch.cat((jpeg_loss(images[:count], quality), images[count:]))
    return images.clamp_(0, 255).round_()


def _surfaces(sample: dict[str, Tensor], count: int) -> Tensor:
    """Background and rectangles, later over earlier: an index per pixel, then one look-up of colours."""
    shapes, batch = sample["shapes"], sample["shapes"].shape[0]
    device = shapes.device
    place = torch.arange(CANVAS, device=device)
    index = torch.zeros(batch, CANVAS, CANVAS, dtype=torch.uint8, device=device)
    for number in range(count):
        x1, y1, x2, y2 = shapes[:, number, :, None].unbind(1)
        columns, rows = (place >= x1) & (place < x2), (place >= y1) & (place < y2)
        index.masked_fill_(rows[:, :, None] & columns[:, None, :], number + 1)
    palette = torch.cat((sample["background"][:, None], _rgb(sample["shape_colour"])), dim=1).float()
    flat = index.view(batch, -1, 1).long().expand(-1, -1, 3)
    return palette.gather(1, flat).view(batch, CANVAS, CANVAS, 3).permute(0, 3, 1, 2)


def _glyphs(atlas: Tensor, sample: dict[str, Tensor], what: Plan, images: Tensor) -> Tensor:
    """Adds glyph coverage, then blends each pixel towards the colour of its word."""
    batch, tile, device = images.shape[0], atlas.shape[-1], images.device
    image, number = what.image, what.number
    offset = torch.arange(tile, device=device)
    x = sample["glyph_x"][image, number][:, None, None] + offset[None, None, :]
    y = sample["glyph_y"][image, number][:, None, None] + offset[None, :, None]
    on_canvas = (x >= 0) & (x < CANVAS) & (y >= 0) & (y < CANVAS)
    cover = atlas[sample["glyph"][image, number]].float() * on_canvas
    pixel = (image[:, None, None] * CANVAS + y.clamp(0, CANVAS - 1)) * CANVAS + x.clamp(0, CANVAS - 1)
    pixel = pixel.reshape(-1)
    alpha = torch.zeros(batch * CANVAS * CANVAS, device=device).index_add_(0, pixel, cover.reshape(-1))
    # Where glyphs touch they belong to one word, hence have one colour: the maximum is that colour.
    inked = torch.where(cover > 0, sample["glyph_colour"][image, number][:, None, None], 0).to(torch.int32)
    colour = torch.zeros(batch * CANVAS * CANVAS, dtype=torch.int32, device=device)
    colour.scatter_reduce_(0, pixel, inked.reshape(-1), "amax")
    weight = (alpha.view(batch, 1, CANVAS, CANVAS) / 255.0).clamp_(max=1.0)
    ink = _rgb(colour.view(batch, CANVAS, CANVAS)).permute(0, 3, 1, 2).float()
    return images * (1 - weight) + ink * weight


def _rotate(images: Tensor, angle: Tensor) -> Tensor:
    """Turns each image counter-clockwise by ``angle`` degrees (B,) about its centre; edges are repeated outwards."""
    cos, sin, zero = torch.cos(torch.deg2rad(angle)), torch.sin(torch.deg2rad(angle)), torch.zeros_like(angle)
    turn = torch.stack((torch.stack((cos, -sin, zero), 1), torch.stack((sin, cos, zero), 1)), 1)
    grid = F.affine_grid(turn, list(images.shape), align_corners=False)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


@cache
def _luminance_steps(device: torch.device) -> Tensor:
    """(8, 8), copied to the device once: a copy per batch would wait for it."""
    return torch.tensor(LUMINANCE_TABLE, dtype=torch.float32, device=device)


def jpeg_loss(images: Tensor, quality: Tensor) -> Tensor:
    """What JPEG at ``quality`` (B,) takes away: rounds 8 x 8 cosine coefficients; chrominance at half resolution."""
    device = images.device
    scale = torch.where(quality < 50, 5000 / quality, 200 - 2 * quality) / 100
    luminance = _luminance_steps(device)
    red, green, blue = images.unbind(1)
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    chroma = torch.stack(((blue - y) * 0.564, (red - y) * 0.713), dim=1)
    y = _quantise((y - 128)[:, None], (luminance * scale[:, None, None]).clamp(min=1))[:, 0] + 128
    steps = torch.full_like(luminance, CHROMINANCE_STEP) * scale[:, None, None]
    chroma = F.interpolate(_quantise(F.avg_pool2d(chroma, 2), steps.clamp(min=1)), scale_factor=2.0, mode="nearest")
    cb, cr = chroma.unbind(1)
    return torch.stack((y + 1.403 * cr, y - 0.344 * cb - 0.714 * cr, y + 1.773 * cb), dim=1).clamp(0, 255)


def _quantise(planes: Tensor, steps: Tensor) -> Tensor:
    """(B, C, H, W) through the orthonormal 8 x 8 DCT, rounded to multiples of ``steps`` (B, 8, 8), and back.

    The two-dimensional transform of a block is one product with the Kronecker square of the basis: a large plain matrix
    product instead of very many tiny ones.
    """
    batch, channels, height, width = planes.shape
    k = torch.arange(8, device=planes.device, dtype=torch.float32)
    basis = torch.cos((2 * k[None, :] + 1) * k[:, None] * torch.pi / 16) * 0.5
    basis[0] *= 0.5**0.5
    square = torch.kron(basis, basis)
    blocks = planes.view(batch, channels, height // 8, 8, width // 8, 8).transpose(3, 4).reshape(batch, -1, 64)
    step = steps.reshape(batch, 1, 64)
    restored = ((blocks @ square.T / step).round() * step) @ square
    return restored.view(batch, channels, height // 8, width // 8, 8, 8).transpose(3, 4).reshape(planes.shape)


def _rgb(packed: Tensor) -> Tensor:
    """(...) packed colours -> (..., 3)."""
    return torch.stack(((packed >> 16) & 255, (packed >> 8) & 255, packed & 255), dim=-1)
