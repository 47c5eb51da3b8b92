"""The pages about formats and box sources: their examples run, and what they print is what they say."""

import os
import random
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats import FORMATS
from tests.conftest import REPOSITORY
from tests.unit.probes.formats.pages import paint
from tests.unit.probes.test_command import output
from tests.warm_python import SOURCES

DOCS = REPOSITORY / "docs"


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^###? |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def blocks(text: str, kind: str = "python") -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def python(folder: Path, *arguments: str) -> str:
    paths = os.pathsep.join([*map(str, SOURCES), str(folder)])
    environment = {**os.environ, "PYTHONPATH": paths, "COLUMNS": "160"}
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, env=environment, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("page", "title"), [("probes.md", "Add a format"), ("box-sources.md", "Add a source")])
def test_the_example_runs_and_prints_what_the_page_says(tmp_path: Path, page: str, title: str) -> None:
    text = section(page, title)
    # What is indented outside of the blocks.
    printed = re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.M)
    assert printed
    assert python(tmp_path, "-c", "\n".join(blocks(text))).strip() == "\n".join(printed)


ASKS = """
import sys
from typer.testing import CliRunner
from sightline.cli import app

build = ["build", "--no-check-images", "--out", "probes.jsonl", "--annotations"]
options = ["--format", "word_table", "--format-option", "delimiter=;", "--max-area", "1"]
for words in (["build", "--help"], ["formats"], [*build, "words.csv"], [*build, "words.txt", *options]):
    print(CliRunner().invoke(app, ["probes", *words], catch_exceptions=False).output, "<end>")
"""


def test_the_formats_of_an_installed_package_work_on_the_command_line(tmp_path: Path) -> None:
    text = section("probes.md", "Add a format")
    (entry,) = re.findall(r'^\[project.entry-points."(.+?)"\]\n(\w+) = "(.+?)"$', text, re.MULTILINE)
    metadata = tmp_path / "word_table-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: word_table\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text("[{}]\n{} = {}\n".format(*entry))
    (tmp_path / "word_table.py").write_text(blocks(text)[0])
    (tmp_path / "words.csv").write_text("image,text,x1,y1,x2,y2\nr1.jpg,Total,0.10,0.20,0.13,0.22\n")
    (tmp_path / "words.txt").write_text("image;text;x1;y1;x2;y2\nr1.jpg;Total;0.10;0.20;0.13;1.22\n")
    helped, listed, built, clipped, _ = python(tmp_path, "-c", ASKS).split("<end>")
    assert "textvqa_gt, word_table, xfund" in re.sub(r"[│\s]+", " ", helped)
    assert "--format-option delimiter" in listed
    assert "2 probes (1 yes, 1 no)" in built
    assert "1 clipped boxes" in clipped
    assert '"delimiter": ";"' in (tmp_path / "probes.jsonl").read_text()


def test_nothing_large_is_imported_when_the_command_line_starts() -> None:
    code = (
        "import sys, sightline.cli;"
        "print([name for name in ('torch', 'sightline.probes.formats.textocr') if name in sys.modules]);"
        "import sightline.commands.probes, sightline.probes;"
        "print([name for name in ('torch', 'transformers', 'PIL', 'pandas', 'numpy') if name in sys.modules])"
    )
    assert python(REPOSITORY, "-c", code) == "[]\n[]\n"


# The examples about formats: their files are written, their commands run, their output is the page's.

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


def write_examples(folder: Path, title: str) -> list[Path]:
    """The files of a section (a line with nothing but the name, a block), without those of COCO, and their images."""
    written = []
    named = re.findall(r"^`(\S+)`:\n\n```\w+\n(.*?)^```", section("probes.md", title), re.DOTALL | re.MULTILINE)
    for name, content in named:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
        written.append(path)
    for name in SECTIONS[title]:
        paint(folder / name)
    return [path for path in written if not path.name.startswith("instances_")]


def test_the_examples_show_every_format_that_others_publish_and_print_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = set()
    for number, title in enumerate(SECTIONS):
        folder = tmp_path / str(number)
        folder.mkdir()
        monkeypatch.chdir(folder)
        found |= {detect_format(path) for path in write_examples(folder, title)}
        typed = blocks(section("probes.md", title), "console")
        asked = [each for block in typed for each in re.findall(r"^\$ (.*)\n((?:[^$].*\n)*)", block, re.MULTILINE)]
        assert asked
        for command, said in asked:
            program, group, *arguments = shlex.split(command)
            assert (program, group) == ("sightline", "probes")
            assert output(*arguments) == said
    assert found == set(FORMATS) - {"regions", "textocr"}
    page = (DOCS / "probes.md").read_text(encoding="utf-8")
    assert f"$ sightline probes formats\n{output('formats')}```" in page


NOISE = b'0123456789"<>/,.;{}[]=- \n\xff'


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut off somewhere, or with a few bytes changed or missing."""
    if rng.random() < 0.3:
        return content[: rng.randrange(len(content))]
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[place] = rng.choice(NOISE)
        else:
            del data[place : place + rng.randint(1, 12)]
    return bytes(data)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_damaged_file_is_read_as_far_as_it_makes_sense_or_refused_by_name(tmp_path: Path, title: str) -> None:
    rng = random.Random(20260720)
    for path in write_examples(tmp_path, title):
        name, whole = detect_format(path), path.read_bytes()
        refusals = []
        for _ in range(60):
            path.write_bytes(damaged(whole, rng))
            try:
                load_regions(path, file_format=name)
            except SightlineError as problem:
                refusals.append(str(problem))
        assert refusals
        assert all(path.name in said for said in refusals)
