"""What a run keeps of an image for reports: a small preview, and the regions sharp where the preview blurs them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass

from PIL import Image

from sightline.core.probe import Box
from sightline.geometry.surroundings import surroundings

PREVIEW_SIDE = 640
PREVIEW_QUALITY = 60
DETAIL_SIDE = 480
DETAIL_QUALITY = 72


@dataclass(frozen=True)
class Detail:
    """A region with its surroundings, cut out before the image was shrunk."""

    jpeg: bytes
    box: Box
    """The part of the image that it shows, in fractions of it."""


def preview(image: Image.Image, shown: tuple[int, int] | None = None) -> bytes:
    """A JPEG small enough to inline in a report and large enough to see a page. The image is shrunk in place.

    ``shown`` is the (width, height) that the model is shown of an image made smaller for it: this shows no more.
    """
    longest = PREVIEW_SIDE if shown is None else min(PREVIEW_SIDE, max(shown))
    image.thumbnail((longest, longest))
    return _jpeg(image, PREVIEW_QUALITY)


def details(image: Image.Image, regions: Iterable[Box]) -> list[Detail]:
    """The distinct regions, each as sharp as a magnified word needs; none of an image that a preview shows whole."""
    if max(image.size) <= PREVIEW_SIDE:
        return []
    found = []
    for region in dict.fromkeys(regions):
        x1, y1, x2, y2 = surroundings([region], *image.size)
        pixels = (int(x1), int(y1), min(image.width, int(x2) + 1), min(image.height, int(y2) + 1))
        crop = image.crop(pixels)
        crop.thumbnail((DETAIL_SIDE, DETAIL_SIDE), Image.Resampling.LANCZOS)
        box = (
            pixels[0] / image.width,
            pixels[1] / image.height,
            pixels[2] / image.width,
            pixels[3] / image.height,
        )
        found.append(Detail(_jpeg(crop, DETAIL_QUALITY), box))
    return found


def _jpeg(image: Image.Image, quality: int) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format="JPEG", quality=quality, optimize=True)
    return buffer.getvalue()
