"""The examples of the page about formats: its files are written, its commands run, their output is the page's."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from sightline.probes.annotations import detect_format
from sightline.probes.formats import FORMATS
from tests.conftest import REPOSITORY
from tests.unit.probes.formats.pages import paint
from tests.unit.probes.test_command import output

PAGE = (REPOSITORY / "docs" / "probes.md").read_text(encoding="utf-8")
QUESTION_IMAGES = [
    "train_images/003a8ae2ef43b901.jpg", "documents/pybv0228_81.png", "OCRBench_Images/IIIT5K/test/918_1.png",
    "receipt.png",
]  # fmt: skip
SECTIONS: dict[str, list[str]] = {
    "TextOCR and COCO-Text": [],
    "Tables of boxes": ["receipt.png"],
    "Forms: FUNSD and XFUND": ["funsd/images/form.png"],
    "Pages: hOCR, ALTO, PAGE XML": [],
    "Relations: GSR-Bench": ["val2017/000000000139.jpg"],
    "Open questions: TextVQA, DocVQA, OCRBench, your own": QUESTION_IMAGES,
}
"""Section -> the images, of 1000 x 800 pixels, that its files need."""


def section(title: str) -> str:
    found = re.search(rf"^### {re.escape(title)}\n(.*?)(?=^###? |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def files(text: str) -> dict[str, str]:
    """Name -> content of the blocks that follow a line with nothing but a name."""
    return dict(re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def commands(text: str) -> list[tuple[str, str]]:
    """What is typed and what it prints, from all console blocks."""
    typed = re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return [found for block in typed for found in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)]


def write_examples(folder: Path, title: str) -> list[Path]:
    """The files of a section and the images they need."""
    written = []
    for name, content in files(section(title)).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        written.append(path)
    for name in SECTIONS[title]:
        paint(folder / name)
    return written


@pytest.mark.parametrize("title", SECTIONS)
def test_the_examples_of_a_section_print_what_the_page_says(
    tmp_path: Path, title: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_examples(tmp_path, title)
    asked = commands(section(title))
    assert asked
    for command, said in asked:
        program, group, *arguments = shlex.split(command)
        assert (program, group) == ("sightline", "probes")
        assert output(*arguments) == said


def test_every_format_of_files_that_others_publish_has_an_example(tmp_path: Path) -> None:
    paths = [path for title in SECTIONS for path in write_examples(tmp_path, title)]
    found = {detect_format(path) for path in paths if not path.name.startswith("instances_")}
    assert found == set(FORMATS) - {"regions", "textocr"}
