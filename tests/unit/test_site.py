"""The documentation site builds strictly, and neither building nor reading it needs a network."""

from __future__ import annotations

import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.unit.test_layers import layers

DOCS = REPOSITORY / "docs"
SVG = "{http://www.w3.org/2000/svg}"


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--config-file",
        str(config),
        "--site-dir",
        str(site),
    ]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(REPOSITORY / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_documentation_is_built(site: Path) -> None:
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert built - written == {
        Path(f"{name}.html") for name in ("404", "index", "changelog", "contributing", "security")
    }
    assert written <= built
    assert not list(site.rglob("*.py")), "generators are no pages"


def test_a_reader_needs_no_network(site: Path) -> None:
    for path in site.rglob("*.html"):
        fetched = re.findall(
            r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\" >]*)", path.read_text()
        )
        assert fetched == [], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\"?(?:https?:)?//", path.read_text()), path.name


def test_the_start_page_is_the_readme_with_links_that_work_here(site: Path) -> None:
    text = (site / "index.html").read_text(encoding="utf-8")
    assert "Audit visual-token pruning" in text
    assert 'href="cost.html"' in text
    assert 'href="contributing.html"' in text
    assert 'src="pictures/unsupported.jpg"' in text


def test_a_link_into_nothing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)\n")
    ours = (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
    without_pages = ours.split("nav:\n  - Start")[0].replace("hooks:\n  - docs/root_pages.py\n", "")
    (tmp_path / "mkdocs.yml").write_text(without_pages)
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "gone.md" in done.stderr


def test_the_picture_of_the_layers_names_exactly_the_units_of_the_table() -> None:
    drawn = ElementTree.parse(DOCS / "pictures" / "layers.svg").getroot()
    rows = [element for element in drawn.iter(f"{SVG}text") if element.get("class") == "units"]
    from_below = sorted(rows, key=lambda row: -float(row.attrib["y"]))
    assert [(row.text or "").split() for row in from_below] == layers()
