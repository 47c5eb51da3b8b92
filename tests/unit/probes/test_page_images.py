"""Where the image of an annotated page is looked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.probes.packed_images import PageImages
from tests.unit.probes.formats.pages import paint


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


def test_a_given_folder_is_the_only_one(tmp_path: Path) -> None:
    paint(tmp_path / "p1.png")
    (tmp_path / "elsewhere").mkdir()
    with pytest.raises(SightlineError, match=r"no image of that name \(p1\.png, .*elsewhere; say where"):
        PageImages(tmp_path, tmp_path / "elsewhere").find("", tmp_path / "p1.xml")


def test_a_subfolder_of_pages_has_its_own_images_first(tmp_path: Path) -> None:
    paint(tmp_path / "a" / "p1.png")
    paint(tmp_path / "b" / "p1.png")
    paint(tmp_path / "p1.png")
    found = PageImages(tmp_path, None)
    assert [found.find("", tmp_path / name / "p1.xml") for name in "ab"] == ["a/p1.png", "b/p1.png"]


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ("p1.png", "p1.png"),
        ("scans/p1.png", "scans/p1.png"),
        ("/home/me/p1.png", "p1.png"),
        ("C:\\scans\\p1.png", "p1.png"),
        ("../../etc/p1.png", "p1.png"),
        ("file:///scans/p1.png", "p1.png"),
        ("https://example.org/iiif/p1.png", "p1.png"),
    ],
)
def test_a_stated_name_that_is_not_there_never_leads_out_of_the_root(tmp_path: Path, stated: str, name: str) -> None:
    assert PageImages(tmp_path, None).find(stated) == name


def test_a_name_without_its_ending_and_capital_endings_are_found(tmp_path: Path) -> None:
    paint(tmp_path / "p1.PNG")
    assert PageImages(tmp_path, None).find("p1") == "p1.PNG"
    assert PageImages(tmp_path, None).find("", tmp_path / "p1.xml.gz") == "p1.PNG"


def test_a_name_that_no_file_can_have_is_not_there(tmp_path: Path) -> None:
    assert PageImages(tmp_path, None).find("x" * 5000 + ".png") == "x" * 5000 + ".png"


def test_an_empty_name_is_refused_where_no_file_stands_for_it(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="image name '' is empty"):
        PageImages(tmp_path, None).find("")
