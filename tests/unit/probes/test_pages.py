"""The pages about formats and box sources: their Python runs, and what they print is what they say."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.unit.probes.test_command import output
from tests.warm_python import SOURCES

DOCS = REPOSITORY / "docs"


def section(page: str, title: str) -> str:
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(title)}\n(.*?)(?=^###? |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, title
    return found[1]


def blocks(text: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def printed(text: str) -> str:
    """What the section says that its last block prints: the lines that are indented."""
    return "\n".join(
        re.findall(r"^    (\S.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.M)
    )


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
    assert printed(text)
    assert python(tmp_path, "-c", "\n".join(blocks(text))).strip() == printed(text)


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
    (tmp_path / "word_table.py").write_text(blocks(text)[0])
    metadata = tmp_path / "word_table-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: word_table\nVersion: 1\n")
    (entry,) = re.findall(r'^\[project.entry-points."(.+?)"\]\n(\w+) = "(.+?)"$', text, re.MULTILINE)
    (metadata / "entry_points.txt").write_text("[{}]\n{} = {}\n".format(*entry))
    (tmp_path / "words.csv").write_text("image,text,x1,y1,x2,y2\nr1.jpg,Total,0.10,0.20,0.13,0.22\n")
    (tmp_path / "words.txt").write_text("image;text;x1;y1;x2;y2\nr1.jpg;Total;0.10;0.20;0.13;1.22\n")
    helped, listed, built, clipped, _ = python(tmp_path, "-c", ASKS).split("<end>")
    assert "textvqa_gt, word_table, xfund" in re.sub(r"[│\s]+", " ", helped)
    assert "--format-option delimiter" in listed
    assert "2 probes (1 yes, 1 no)" in built
    assert "1 clipped boxes" in clipped
    assert '"delimiter": ";"' in (tmp_path / "probes.jsonl").read_text()


def test_the_page_shows_the_formats_as_they_are_listed() -> None:
    page = (DOCS / "probes.md").read_text(encoding="utf-8")
    assert f"$ sightline probes formats\n{output('formats')}```" in page


def test_nothing_large_is_imported_when_the_command_line_starts() -> None:
    code = (
        "import sys, sightline.cli;"
        "print([name for name in ('torch', 'sightline.probes.formats.textocr') if name in sys.modules]);"
        "import sightline.commands.probes, sightline.probes;"
        "print([name for name in ('torch', 'transformers', 'PIL', 'pandas', 'numpy') if name in sys.modules])"
    )
    assert python(REPOSITORY, "-c", code) == "[]\n[]\n"
