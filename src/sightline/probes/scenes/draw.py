"""Draws a scene with Pillow: the reference renderer, and the one that the shipped probe sets were drawn with."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from sightline.probes.scenes.compose import CANVAS, Scene


def draw(scene: Scene, seed: int = 0) -> Image.Image:
    """RGB image, CANVAS x CANVAS. ``seed`` drives the noise alone."""
    image = Image.new("RGB", (CANVAS, CANVAS), scene.background)
    brush = ImageDraw.Draw(image)
    for x1, y1, x2, y2, colour in scene.shapes:
        brush.rectangle((x1, y1, x2 - 1, y2 - 1), fill=colour)
    for word in scene.words:
        brush.text((word.x, word.y), word.text, font=scene.face(word).load(), fill=word.colour)
    if any(scene.light):
        image = _to_image(np.asarray(image, np.float32) + _ramp(scene.light))
    if scene.angle:
        image = image.rotate(scene.angle, Image.Resampling.BILINEAR, fillcolor=scene.background)
    if not (scene.blur or scene.noise):
        return image
    pixels = np.asarray(image, np.float32)
    if scene.blur:
        pixels = pixels * (1 - scene.blur) + _mean3(pixels) * scene.blur
    if scene.noise:
        pixels = pixels + np.random.default_rng(seed).normal(0.0, scene.noise, (CANVAS, CANVAS, 1)).astype(np.float32)
    return _to_image(pixels)


def _ramp(light: tuple[float, float]) -> NDArray[np.float32]:
    """(CANVAS, CANVAS, 1) brightness that rises linearly from -light to +light along x and along y."""
    axis = np.linspace(-1.0, 1.0, CANVAS, dtype=np.float32)
    return (light[0] * axis[None, :] + light[1] * axis[:, None])[..., None].astype(np.float32)


def _mean3(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """3 x 3 mean, edges repeated."""
    padded = np.pad(pixels, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    total: NDArray[np.float32] = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return total / np.float32(9.0)


def _to_image(pixels: NDArray[np.float32]) -> Image.Image:
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))
