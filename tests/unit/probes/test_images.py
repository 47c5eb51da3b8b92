"""Images as they are stored, opened as RGB within limits; where the image of an annotated page is looked for."""

import io
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import ExifTags, Image, ImageDraw

from sightline.auditing.shards import check_image
from sightline.device.work import MemoryGrowth
from sightline.errors import SightlineError
from sightline.probes import ImageRegions, Word, images
from sightline.probes.annotations import check_image_sizes
from sightline.probes.fetched_images import strip_image_prefix
from sightline.probes.images import (
    image_digest,
    image_size,
    occlude_boxes,
    open_image,
    pixel_box,
    resolve_image,
    webp_size,
)
from sightline.probes.packed_images import PageImages
from tests.refusals import Refused
from tests.unit.probes.formats.pages import paint, png_of

Array = np.ndarray[Any, Any]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "train").mkdir()
    noise = np.random.default_rng(0).integers(0, 255, (40, 60, 3), dtype=np.uint8)
    for name in ("a.png", "a.jpg"):
        Image.fromarray(noise).save(tmp_path / "train" / name)
    return tmp_path


def gray(folder: Path, name: str) -> Array:
    """The values of an image that is gray."""
    return np.asarray(open_image(folder, name))[..., 0]


def deep_png(values: Array) -> bytes:
    """(height, width, 3) values as a PNG of 16 bits a channel, which Pillow reads and does not write."""
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    return png_of(values.shape[1], values.shape[0], 16, zlib.compress(lines))


def test_what_is_transparent_is_white_paper(root: Path) -> None:
    clear = Image.new("RGBA", (2, 1), (255, 0, 0, 0))
    clear.putpixel((1, 0), (0, 0, 0, 255))
    for mode in ("RGBA", "LA", "P"):
        clear.convert(mode).save(root / "clear.png")
        assert np.asarray(open_image(root, "clear.png")).tolist() == [[[255] * 3, [0] * 3]], mode


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "deep"])
def test_strips_change_no_pixel(tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large page is converted strip by strip."""
    noise = np.random.default_rng(0).integers(0, 65536, (40, 30, 4), dtype=np.uint16)
    if mode == "deep":
        (tmp_path / "a.tif").write_bytes(deep_png(noise[..., :3]))
    else:
        shallow = Image.fromarray((noise >> 8).astype(np.uint8))
        image = Image.fromarray(noise[..., 0]) if mode == "I;16" else shallow.convert(mode)
        image.save(tmp_path / "a.tif", format="TIFF" if mode == "CMYK" else "PNG")
    whole, pixels = open_image(tmp_path, "a.tif"), list[bytes]()
    for rows in (1, 7, 40):
        monkeypatch.setattr("sightline.probes.images.STRIP", rows)
        pixels.append(open_image(tmp_path, "a.tif").tobytes())
    assert set(pixels) == {whole.tobytes()}


@pytest.mark.parametrize(("mode", "bytes_per_pixel"), [("RGB", 4.5), ("RGBA", 9.5), ("I;16", 8.5)])
def test_a_large_page_takes_two_images_of_memory_and_no_more(tmp_path: Path, mode: str, bytes_per_pixel: float) -> None:
    side = 4000
    Image.new(mode, (side, side), 60_000 if mode == "I;16" else "white").save(tmp_path / "a.png", compress_level=1)
    with MemoryGrowth(torch.device("cpu")) as memory:
        open_image(tmp_path, "a.png")
    if memory.grown is None:
        pytest.skip("this machine does not tell how much memory a process needed")
    assert memory.grown < bytes_per_pixel * side * side


def test_images_open_as_rgb_to_the_bit_are_not_turned_and_have_digests(root: Path, refused: Refused) -> None:
    Image.new("L", (7, 5), 9).save(root / "gray.png")
    image = open_image(root, "gray.png")
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", (7, 5), (9, 9, 9))
    assert image_size(root / "train" / "a.jpg") == (60, 40)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    with Image.open(root / "train" / "a.png") as stored:
        stored.save(root / "turned.png", exif=exif)
        stored.convert("RGBA").save(root / "opaque.png")
    for name in ("turned.png", "opaque.png"):  # annotations refer to stored pixels
        assert open_image(root, name).tobytes() == open_image(root, "train/a.png").tobytes()
    assert image_size(root / "turned.png") == (60, 40)
    digest = image_digest(root / "train" / "a.png")
    assert digest.startswith("sha256:")
    assert digest != image_digest(root / "train" / "a.jpg")

    def record(width: int, height: int) -> ImageRegions:
        return ImageRegions("a", "train/a.png", (Word("w", (0.0, 0.0, 1.0, 1.0)),), width=width, height=height)

    check_image_sizes(root, [record(60, 40)])
    refused("is 60 x 40 pixels, its annotation says 60 x 41", check_image_sizes, root, [record(60, 41)])
    refused("sides swapped", check_image_sizes, root, [record(40, 60)])


def test_neither_a_name_nor_a_link_leads_out_of_the_root(
    root: Path, tmp_path_factory: pytest.TempPathFactory, refused: Refused
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    Image.new("RGB", (4, 4)).save(outside / "secret.png")
    (root / "link.png").symlink_to(outside / "secret.png")
    (root / "one.png").symlink_to(root / "two.png")
    (root / "two.png").symlink_to(root / "one.png")
    for name, says in {
        "../a.png": "image name '../a.png'", "/etc/passwd": "image name '/etc/passwd'",
        "train/../../a.png": "image name 'train/../../a.png'", "\\\\server\\a.png": "server",
        "link.png": "link that leaves the image root", "mini/train/a.png": "does not exist",
    }.items():  # fmt: skip
        refused(says, open_image, root, name)
    with pytest.raises(SightlineError, match=r"circle|cannot be read|does not exist"):
        open_image(root, "one.png")
    (root / "inside.png").symlink_to(root / "train" / "a.png")
    assert open_image(root, "inside.png").size == (60, 40)
    assert resolve_image(root, strip_image_prefix("mini/train/a.png", "mini")) == root / "train" / "a.png"
    refused("leaves the image root", resolve_image, root, strip_image_prefix("mini/../../a.png", "mini"))


def test_what_is_no_whole_image_is_named(root: Path) -> None:
    whole = (root / "train" / "a.jpg").read_bytes()
    (root / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    (root / "text.jpg").write_text("not an image")
    (root / "empty.jpg").touch()
    (root / "page.eps").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n")
    for name in ("cut.jpg", "text.jpg", "empty.jpg", "page.eps", "absent.jpg", "train"):
        with pytest.raises(SightlineError, match=name.replace(".", r"\.")):
            open_image(root, name)


@pytest.mark.parametrize(("side", "limit"), [(20_000, images.MAX_PIXELS), (60_000, images.MAX_PIXELS), (100, 9_999)])
def test_what_is_too_large_is_named_before_it_is_decoded(
    root: Path, side: int, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "MAX_PIXELS", limit)
    (root / "bomb.png").write_bytes(png_of(side, side, 8, b""))  # announces a size and holds no pixels
    with pytest.raises(SightlineError, match=r"bomb\.png (has|is too large)"):
        open_image(root, "bomb.png")


def test_what_is_too_narrow_is_named_before_it_is_decoded(root: Path, refused: Refused) -> None:
    for size in ((20_000, 1), (1, 20_000), (4_021, 20), (4_000, 20)):
        Image.new("L", size).save(root / "narrow.png")
        if size == (4_000, 20):
            assert open_image(root, "narrow.png").size == size
        else:
            refused(f"has {size[0]} x {size[1]} pixels", open_image, root, "narrow.png")


def test_boxes_in_pixels_round_half_to_even() -> None:
    for box, pixels in (
        ((0.1, 0.1, 0.2, 0.3), (6, 4, 12, 12)),
        ((0.0, 0.0, 1.0, 1.0), (0, 0, 60, 40)),
        ((0.5, 0.5, 0.5001, 0.5001), (30, 20, 31, 21)),
        ((0.9999, 0.9999, 1.0, 1.0), (59, 39, 60, 40)),
        ((0.025, 0.0375, 0.0583, 0.0875), (2, 2, 3, 4)),  # 1.5 and 1.5, 3.498 and 3.5
    ):
        assert pixel_box(box, 60, 40) == pixels


def test_occlusion_fills_boxes_with_their_far_edges(root: Path) -> None:
    plain = np.asarray(open_image(root, "train/a.png"))
    grayed = np.asarray(open_image(root, "train/a.png", occlude=((0.1, 0.1, 0.2, 0.3),)))
    inside = np.zeros((40, 60), dtype=bool)
    inside[4:13, 6:13] = True
    assert (grayed[inside] == 127).all()
    np.testing.assert_array_equal(grayed[~inside], plain[~inside])
    whole = occlude_boxes(open_image(root, "train/a.png"), [(0.0, 0.0, 1.0, 1.0)])
    assert (np.asarray(whole) == 127).all()


def drawn_page() -> Image.Image:
    """A gray page with a word on it and every gray value below."""
    page = Image.new("L", (256, 60), 240)
    ImageDraw.Draw(page).text((20, 10), "INVOICE", fill=20)
    page.paste(Image.fromarray(np.tile(np.arange(256, dtype=np.uint8), (20, 1))), (0, 40))
    return page


@pytest.mark.parametrize("name", ["page.png", "page.tif", "page.pgm"])
def test_a_gray_image_of_16_bits_gives_the_pixels_of_its_twin_of_8_bits(tmp_path: Path, name: str) -> None:
    page = drawn_page()
    page.save(tmp_path / "twin.png")
    Image.fromarray(np.asarray(page).astype(np.uint16) * 257).save(tmp_path / name)
    with Image.open(tmp_path / name) as stored:
        assert stored.mode in ("I;16", "I"), "more than 8 bits a pixel"
    assert open_image(tmp_path, name).tobytes() == open_image(tmp_path, "twin.png").tobytes()
    values = np.array([[0, 128, 129, 257 * 7 - 128, 257 * 7 + 128, 257 * 7 + 129, 65535]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / name)
    assert gray(tmp_path, name)[0].tolist() == [0, 0, 1, 7, 7, 8, 255], "the nearer of two"


@pytest.mark.parametrize(
    ("order", "bits", "photometric", "samples", "grays"),
    [
        ("<", 16, 1, struct.pack("<3H", 0, 257 * 90, 65535), [0, 90, 255]),
        (">", 16, 1, struct.pack(">3H", 0, 257 * 90, 65535), [0, 90, 255]),
        ("<", 16, 0, struct.pack("<3H", 0, 257 * 90, 65535), [255, 165, 0]),
        ("<", 12, 1, bytes([0xFF, 0xF8, 0x00]), [255, 128]),
    ],
    ids=["little-endian", "big-endian", "white-is-zero", "12-bits"],
)
def test_deep_gray_tiffs_are_read_as_their_tags_say(
    tmp_path: Path, order: str, bits: int, photometric: int, samples: bytes, grays: list[int]
) -> None:
    """A TIFF of one row: header, one directory, the samples behind it."""
    tags = {256: len(grays), 257: 1, 258: bits, 259: 1, 262: photometric, 277: 1, 278: 1, 279: len(samples)}
    tags[273] = 8 + 2 + 12 * (len(tags) + 1) + 4
    entries = b"".join(struct.pack(f"{order}HHII", tag, 4, 1, value) for tag, value in sorted(tags.items()))
    header = {"<": b"II", ">": b"MM"}[order] + struct.pack(f"{order}HIH", 42, 8, len(tags))
    (tmp_path / "row.tif").write_bytes(header + entries + bytes(4) + samples)
    assert gray(tmp_path, "row.tif")[0].tolist() == grays


@pytest.mark.parametrize("name", ["gray.png", "gray.tif", "colour.png"])
def test_12_bits_in_a_file_of_16_are_refused_instead_of_read_as_black(
    tmp_path: Path, name: str, refused: Refused
) -> None:
    for high in (4095, 65535, 0):
        values = np.linspace(0, high, 64, dtype=np.uint16).reshape(8, 8)
        if name == "colour.png":
            (tmp_path / name).write_bytes(deep_png(np.stack([values] * 3, axis=2)))
        else:
            Image.fromarray(values).save(tmp_path / name)
        if high == 4095:
            refused(f"{name} holds values up to", open_image, tmp_path, name)
        else:
            assert np.asarray(open_image(tmp_path, name)).max() == high // 257


LOOKS: tuple[Callable[[Path], object], ...] = (image_size, lambda path: open_image(path.parent, path.name))
"""Ways to look at an image: at its header alone, and at all of it."""


def test_values_without_an_agreed_white_are_refused(tmp_path: Path, refused: Refused) -> None:
    for kind, mode in ((np.float32, "mode F"), (np.int32, "mode I")):
        Image.fromarray(np.asarray(drawn_page()).astype(kind)).save(tmp_path / "page.tif")
        for look in LOOKS:
            refused(mode, look, tmp_path / "page.tif")


def test_a_pipe_is_refused_before_anybody_waits_for_it(tmp_path: Path, refused: Refused) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    for reader in (image_digest, *LOOKS):
        refused("pipe.png is not a file", reader, tmp_path / "pipe.png")
    refused("absent.png: cannot be read", image_digest, tmp_path / "absent.png")


@pytest.mark.parametrize("name", ["scan.tif", "moving.gif", "moving.webp", "moving.png"])
def test_an_image_of_several_pages_is_refused_by_name_with_their_number(
    tmp_path: Path, name: str, refused: Refused
) -> None:
    pages = [Image.new("RGB", (30, 20), (shade, 0, 0)) for shade in (50, 150, 250)]
    pages[0].save(tmp_path / name, save_all=True, append_images=pages[1:])
    for look in LOOKS:
        refused(f"{name} has 3 pages or frames", look, tmp_path / name)
    before, during = (check_image(tmp_path, name, runs) for runs in (False, True))
    assert before == during, "before a model is loaded, as while it runs"
    pages[0].save(tmp_path / name, save_all=True)
    assert image_size(tmp_path / name) == (30, 20), "one page is one image"


def test_a_smaller_copy_within_a_tiff_is_no_page(tmp_path: Path) -> None:
    page, small = Image.new("RGB", (30, 20), "red"), Image.new("RGB", (15, 10), "red")
    small.encoderinfo = {"tiffinfo": {254: 1}}
    page.save(tmp_path / "scan.tif", save_all=True, append_images=[small])
    with Image.open(tmp_path / "scan.tif") as stored:
        assert getattr(stored, "n_frames", 1) == 2
    assert open_image(tmp_path, "scan.tif").size == (30, 20)


def webp(size: tuple[int, int], **how: Any) -> bytes:
    packed = io.BytesIO()
    Image.effect_noise(size, 60).convert("RGB").save(packed, format="WEBP", **how)
    return packed.getvalue()


def test_all_three_kinds_of_webp_tell_their_size_and_other_bytes_nothing() -> None:
    kinds: dict[bytes, dict[str, Any]] = {b"VP8 ": {}, b"VP8L": {"lossless": True}, b"VP8X": {"exif": b"Exif\0\0MM"}}
    for kind, how in kinds.items():
        for size in ((1, 1), (3, 700), (1000, 17)):
            data = webp(size, **how)
            assert data[12:16] == kind
            assert webp_size(data[:30]) == size
    others = (b"", b"RIFF\0\0\0\0WAVE" + bytes(30), b"RIFF\0\0\0\0WEBPABCD" + bytes(30), webp((8, 8))[:20])
    assert [webp_size(data) for data in others] == [None] * 4


# Where the image of an annotated page is looked for.


@pytest.mark.parametrize("place", ["in/pages", "in/pages/images", "in/images", "in"])
def test_images_lie_with_the_pages_or_near_them(tmp_path: Path, place: str) -> None:
    folder = tmp_path / "in" / "pages"
    folder.mkdir(parents=True)
    paint(tmp_path / place / "p1.tif")
    found = PageImages(folder, None)
    assert found.find("", folder / "p1.xml") == "p1.tif"
    assert found.root is not None
    assert found.root.samefile(tmp_path / place)
    assert found.size("p1.tif") == (1000, 800)


def test_a_subfolder_has_its_own_images_first_and_a_given_folder_alone(tmp_path: Path, refused: Refused) -> None:
    for name in ("a/p1.png", "b/p1.png", "p1.png"):
        paint(tmp_path / name)
    found = PageImages(tmp_path, None)
    assert [found.find("", tmp_path / name / "p1.xml") for name in "ab"] == ["a/p1.png", "b/p1.png"]
    (tmp_path / "elsewhere").mkdir()
    refused("no image of that name", PageImages(tmp_path, tmp_path / "elsewhere").find, "", tmp_path / "p1.xml")


def test_a_stated_name_never_leads_out_of_the_root(tmp_path: Path, refused: Refused) -> None:
    paint(tmp_path / "q1.PNG")
    for stated, name in {
        "p1.png": "p1.png", "scans/p1.png": "scans/p1.png", "/home/me/p1.png": "p1.png",
        "C:\\scans\\p1.png": "p1.png", "../../etc/p1.png": "p1.png", "file:///scans/p1.png": "p1.png",
        "https://example.org/iiif/p1.png": "p1.png", "x" * 5000 + ".png": "x" * 5000 + ".png", "q1": "q1.PNG",
    }.items():  # fmt: skip
        assert PageImages(tmp_path, None).find(stated) == name
    assert PageImages(tmp_path, None).find("", tmp_path / "q1.xml.gz") == "q1.PNG"
    refused("image name '' is empty", PageImages(tmp_path, None).find, "")
