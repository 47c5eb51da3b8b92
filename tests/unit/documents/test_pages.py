"""Folders of images and PDFs become pages; what cannot be used is named, and the rest goes on."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from sightline.documents.pages import DPI, LONGEST_SIDE, find_pages
from sightline.probes.images import open_image
from tests.refusals import Refused

ENCRYPTED = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>endobj\n"
    b"4 0 obj<</Filter/Standard/V 1/R 2/P -4/O<" + b"11" * 32 + b">/U<" + b"22" * 32 + b">>>endobj\n"
    b"trailer<</Root 1 0 R/Encrypt 4 0 R/ID[<33><33>]/Size 5>>\n%%EOF"
)


def page(color: str = "white", size: tuple[int, int] = (60, 40)) -> Image.Image:
    return Image.new("RGB", size, color)


def pdf(path: Path, pages: int = 1, resolution: float = 72.0, size: tuple[int, int] = (60, 40)) -> None:
    page(size=size).save(path, save_all=True, append_images=[page(size=size)] * (pages - 1), resolution=resolution)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    (made / "may").mkdir(parents=True)
    return made


def test_images_are_used_where_they_are(folder: Path) -> None:
    out = folder.parent / "out"
    page().save(folder / "b.png")
    page().save(folder / "may" / "a.jpg")
    (folder / "notes.txt").write_text("not a document")
    (folder / ".hidden.png").write_bytes(b"")
    plain = find_pages(folder, out)
    assert [(each.image, each.number, each.width, each.height) for each in plain.pages] == [
        ("b.png", 0, 60, 40), ("may/a.jpg", 0, 60, 40)
    ]  # fmt: skip
    assert (plain.root, plain.left_out, plain.converted, plain.problems) == (folder, 1, 0, ())
    assert not out.exists()


def test_pages_of_pdfs_and_frames_become_images_of_their_own(folder: Path) -> None:
    page().save(folder / "b.png")
    pdf(folder / "may" / "bill.pdf", pages=2)
    page("red").save(folder / "scan.tiff", save_all=True, append_images=[page("blue")])
    found = find_pages(folder, folder.parent / "out")
    assert [each.page_id for each in found.pages] == [
        "b.png", "scan.tiff#1", "scan.tiff#2", "may/bill.pdf#1", "may/bill.pdf#2"
    ]  # fmt: skip
    assert found.converted == 4
    sizes = {each.page_id: open_image(found.root, each.image).size for each in found.pages}
    assert sizes["may/bill.pdf#1"] == pytest.approx((60 * DPI / 72, 40 * DPI / 72), abs=1)  # rounded up by PDFium
    assert all(sizes[each.page_id] == (each.width, each.height) for each in found.pages)
    assert open_image(found.root, found.pages[2].image).getpixel((0, 0)) == (0, 0, 255)


def test_a_page_is_rendered_once_and_again_when_its_source_changes(folder: Path) -> None:
    out = folder.parent / "out"
    pdf(folder / "bill.pdf")
    (first,) = find_pages(folder, out).pages
    before = (out / first.image).stat().st_mtime_ns
    assert find_pages(folder, out).pages == (first,)
    assert (out / first.image).stat().st_mtime_ns == before
    pdf(folder / "bill.pdf", size=(80, 40))
    (second,) = find_pages(folder, out).pages
    assert second.image != first.image
    assert second.width > first.width


def test_a_large_sheet_is_rendered_within_the_bound(folder: Path, tmp_path: Path) -> None:
    pdf(folder / "poster.pdf", resolution=10.0, size=(600, 400))
    (sheet,) = find_pages(folder, tmp_path / "out").pages
    assert max(sheet.width, sheet.height) == LONGEST_SIDE


def test_a_turned_photograph_is_set_upright(folder: Path, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph = page()
    photograph.paste("black", (0, 0, 30, 40))  # its left half is the upper one
    photograph.save(folder / "phone.jpg", exif=exif, quality=95)
    found = find_pages(folder, tmp_path / "out")
    upright = open_image(found.root, found.pages[0].image)
    assert upright.size == (40, 60)
    assert [int(np.asarray(upright)[y, 20, 0]) // 128 for y in (5, 55)] == [0, 1]


UNUSABLE = {
    "locked.pdf": (ENCRYPTED, "is encrypted; save a copy without the password"),
    "broken.pdf": (b"%PDF-1.4 and then nothing", "cannot be read as a PDF"),
    "text.pdf": (b"hello", "is no PDF"),
    "noise.jpg": (b"\xff\xd8 no image", "cannot be read"),
    "empty.png": (b"", "is empty"),
}


def test_a_file_that_cannot_be_used_is_named_and_the_others_go_on(
    folder: Path, tmp_path: Path, refused: Refused
) -> None:
    for name, (content, _) in UNUSABLE.items():
        (folder / name).write_bytes(content)
    page().save(folder / "good.png")
    found = find_pages(folder, tmp_path / "out")
    assert [each.image for each in found.pages] == ["good.png"]
    problems = dict(found.problems)
    assert {name for name, (_, said) in UNUSABLE.items() if said in problems[name]} == set(UNUSABLE) == set(problems)
    for name in ("good.png", *list(UNUSABLE)[1:]):
        (folder / name).unlink()
    refused("no page to read in 1 file; locked.pdf", find_pages, folder, tmp_path / "out")
    (folder / "locked.pdf").unlink()
    refused("no page to read in 0 files; name a folder", find_pages, folder, tmp_path / "out")
    refused("does not exist; name a folder", find_pages, folder / "gone", tmp_path / "out")


def test_links_lead_to_files_alone_and_what_is_no_file_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    page().save(tmp_path / "elsewhere" / "real.png")
    (folder / "linked.png").symlink_to(tmp_path / "elsewhere" / "real.png")
    (folder / "may" / "round").symlink_to(folder)
    (folder / "self.png").symlink_to("self.png")
    os.mkfifo(folder / "pipe.png")
    for name in (os.fsdecode(b"\xff.png"), "two\nlines.png"):
        page().save(folder / name)
    found = find_pages(folder, tmp_path / "out", gather=True)
    assert [each.image for each in found.pages] == ["linked.png"]
    assert open_image(found.root, "linked.png").size == (60, 40)
    assert {file: problem.split(";")[0] for file, problem in found.problems} == {
        "may/round": "is a link to a folder, which is not followed",
        "self.png": "cannot be read: Too many levels of symbolic links",
        "pipe.png": "is no file, whatever its ending says",
        "\\udcff.png": "has a name that is not UTF-8, or with a line break",
        "two\\nlines.png": "has a name that is not UTF-8, or with a line break",
    }


def test_pages_of_files_with_the_longest_names_are_apart(folder: Path, tmp_path: Path) -> None:
    names = [f"{'ü' * 125}{number}.pdf" for number in (1, 2)]
    for number, name in enumerate(names, start=1):
        pdf(folder / name, pages=number)
    found = find_pages(folder, tmp_path / "out")
    assert [each.page_id for each in found.pages] == [f"{names[0]}#1", f"{names[1]}#1", f"{names[1]}#2"]
    assert len({(found.root / each.image).stat().st_ino for each in found.pages}) == 3


def test_a_list_of_files_has_a_limit(folder: Path, tmp_path: Path) -> None:
    pdf(folder / "bill.pdf", pages=3)
    page().save(folder / "may" / "scan", format="PNG")
    found = find_pages([folder / "may" / "scan", folder / "bill.pdf"], tmp_path / "out", limit=3)
    assert [each.page_id for each in found.pages] == ["may/scan", "bill.pdf#1", "bill.pdf#2"]


def test_what_an_earlier_call_wrote_is_not_a_document(folder: Path) -> None:
    pdf(folder / "bill.pdf")
    first = find_pages(folder, folder / "out" / "pages")
    (folder / "out" / "report").mkdir()
    page().save(folder / "out" / "report" / "picture.png")
    assert find_pages(folder, folder / "out" / "pages") == first
    assert find_pages(folder, folder / "pages").left_out == 0, "beside pages of their own documents are documents"
    assert len(find_pages(folder, folder / "pages").pages) == 3
