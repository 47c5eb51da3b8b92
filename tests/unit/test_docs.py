"""The documentation is code's: tables and pages are current, Python blocks run, the site builds without a network."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import typer

import sightline
from sightline import SELECTORS, AuditConfig
from sightline.answering.scorers import SCORERS
from sightline.backbones.loading import with_defaults
from sightline.cli import app
from sightline.core.row import IMAGE_COLUMNS, ROW_COLUMNS
from sightline.core.selection import BLOCK_KINDS, HIDDEN_KINDS, LANGUAGE_KINDS, LAYERLESS_KINDS
from sightline.interventions import INTERVENTIONS
from sightline.statistics.metrics import METRICS
from tests.conftest import REPOSITORY
from tests.unit.test_layers import layers
from tests.warm_python import run_python

DOCS = REPOSITORY / "docs"


def text(path: Path | str) -> str:
    """Of a file of the repository."""
    return (REPOSITORY / path).read_text(encoding="utf-8")


README = text("README.md")


@pytest.fixture(scope="module", autouse=True)
def _importable_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        yield


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    return importlib.import_module("reference")


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    return importlib.import_module("generate")


def test_generated_tables_are_current(generate: ModuleType, data: Path) -> None:
    for path, made in generate.documents(data / "golden").items():
        assert path.read_text(encoding="utf-8") == made, f"{path.name} is stale: run python docs/generate.py"


def test_every_method_and_signal_is_documented_and_every_published_method_names_its_paper(generate: ModuleType) -> None:
    methods, signals = text("docs/methods.md"), text("docs/signals.md")
    for name in SELECTORS:
        assert f"| `{name}` |" in methods
        for need in with_defaults(SELECTORS.get(name)).needs:
            assert f"`{need.partition('@')[0]}" in signals, need
    kinds = {name.partition("@")[0] for name, _, _ in generate.SIGNALS}
    assert kinds == {*HIDDEN_KINDS, *BLOCK_KINDS, *LAYERLESS_KINDS, *LANGUAGE_KINDS}
    without = {name for name in SELECTORS if not generate.reference(SELECTORS.get(name))}
    assert without == {"full", "masks"}


ATTENTION = re.compile(r"vision\.(cls_attention|received|cls_query)@")
GROUPS: dict[str, Callable[[Any], bool]] = {
    "By attention of the vision tower": lambda selector: (
        not selector.inside and any(map(ATTENTION.match, selector.needs))
    ),
    "By the question": lambda selector: not selector.inside and selector.query != "none",
    "By likeness, blind to the question": lambda selector: not selector.inside and selector.query == "none",
    "Between the layers of the language model": lambda selector: bool(selector.inside),
    "To compare with": lambda selector: selector.role in ("control", "reference"),
}
"""Group of methods in the README -> what its members have in common."""


def test_the_readme_is_a_front_door() -> None:
    """Short, with a picture, few tables, the first commands, and a link to every page of the site."""
    assert len(README) < 10_000
    assert len(re.findall(r"^\|---", README, re.MULTILINE)) <= 2
    for words in ("make demo", "make test", "sightline audit ", "sightline view ", "sightline.audit("):
        assert words in README
    (picture,) = re.findall(r"!\[.+\]\((.+)\)", README)
    assert (REPOSITORY / picture).stat().st_size < 300_000
    pages = {f"docs/{page.name}" for page in DOCS.glob("*.md")}
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", README)}
    assert pages - linked == set()
    groups = dict(re.findall(r"^- \*\*(.+?)\*\*: (.+)$", README, re.MULTILINE))
    assert set(groups) == set(GROUPS)
    for title, words in groups.items():
        names = re.findall(r"`(\w+)`", words)
        assert names
        assert [name for name in names if not GROUPS[title](SELECTORS.get(name)())] == [], title
    assert "](docs/methods.md)" in README


YES_NO, OPEN = text("src/sightline/assets/reader/README.md").split("## Held-out figures")[1:3]


def column(table: str, number: int) -> dict[str, str]:
    """Values of a Markdown table without intervals, by what its first column names; of equal names the first."""
    cells = (line.strip("|").split("|") for line in table.splitlines() if line.startswith("| `"))
    found = [(row[0].strip(" `"), row[number].split()[0]) for row in cells if len(row) > number and row[number].strip()]
    return dict(reversed(found))


REMOVED = {
    "full": "nothing",
    "full+occlude_random": "another box of its size grayed, before the tower",
    "full+remove_evidence": "the cells of the word deleted, behind the tower",
    "full+occlude_evidence": "the word grayed, before the tower",
}


def test_the_readme_quotes_the_model_card_and_the_readers_page() -> None:
    assert "| arm | Accuracy | TPR |" in YES_NO
    assert [arm for arm, what in REMOVED.items() if f"| {what} | {column(YES_NO, 2)[arm]} |" not in README] == []
    exact = column(OPEN, 1)
    said = " ".join(README.split())
    assert f"from {exact['full']} to {exact['full+remove_evidence']} when their cells are deleted" in said
    replaced = text("docs/reader.md").partition("| Switch |")[2]
    follows = {arm: f"{float(share.rstrip('%')):.0f} %" for arm, share in column(replaced, 5).items() if "%" in share}
    assert f"Full follows it on {follows['full']} of 100 pages, `target:0.3` on {follows['target:0.3']}" in said
    assert f"`random:0.3` on {follows['random:0.3']}." in said


@pytest.mark.slow
def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    """A probe more or less may be right on another machine."""
    from sightline.checks.demo import run_demo

    table = {
        row[0]: row[1:] for row in re.findall(r"^\| `(\S+)` " + r"\| ([\d.]+)[^|]*" * 4 + r"\|$", README, re.MULTILINE)
    }
    assert set(table) == {"full", "target:0.3", "random:0.3", "grid:0.3"}
    summary = run_demo(tmp_path, draws=100, cases=2).summary.set_index("arm")
    for arm, figures in table.items():
        measured = [float(summary.loc[arm, name]) for name in ("accuracy", "hfpr", "pos_ecr", "unsupported")]
        assert [float(figure) for figure in figures] == pytest.approx(measured, abs=0.035), arm


def test_other_peoples_methods_are_counted_apart_from_the_audits_own_and_from_controls() -> None:
    for name in ("scope", "coin", "fastv", "visionzip_qwen"):
        assert SELECTORS.get(name).published_by_others(), name
    for name in ("full", "random", "target", "spatial_aware", "evidence_only", "resize", "masks"):
        assert not SELECTORS.get(name).published_by_others(), name
    published = [name for name, kind in SELECTORS.items() if kind.published_by_others()]
    assert len(published) == 54
    for page in ("README.md", "docs/methods.md", "docs/selectors.md"):
        words = " ".join(text(page).split())
        counts = re.findall(r"(\d+) of the (\d+) selectors are methods that others published", words)
        assert counts == [(str(len(published)), str(len(SELECTORS.names())))], page


TEXT = text("docs/python.md")
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE))


def test_its_code_runs_and_its_command_writes_the_same_picture(data: Path, tmp_path: Path) -> None:
    mini = data / "mini_textocr"
    for name, target in {
        "checkpoint": data / "tiny" / "qwen3vl",
        "images": mini,
        "annotations.json": mini / "TextOCR_mini_val.json",
        "probes.jsonl": data / "recorded_run" / "probes.jsonl",
    }.items():
        (tmp_path / name).symlink_to(target)
    run_python(["-c", CODE], cwd=tmp_path).check_returncode()
    picture = tmp_path / "picture.png"
    before = picture.read_bytes()
    picture.unlink()
    (line,) = re.findall(r"^    (sightline show .*)$", TEXT, re.MULTILINE)
    probe = sightline.load_run(tmp_path / "runs" / "first").probes[0]["id"]
    run_python(["-m", "sightline", *line.replace("PROBE", probe).split()[1:]], cwd=tmp_path).check_returncode()
    assert picture.read_bytes() == before


OF_FILES = ("rows_of", "pieces", "owner", "image_pieces", "finished_shards")
"""Methods by which Sightline itself finds a run's rows in its files."""


def test_it_shows_every_public_name() -> None:
    shown = {name for name in sightline.__all__ if re.search(rf"\bsightline\.{name}\b", CODE)}
    told = {name for name in sightline.__all__ if f"`{name}`" in TEXT}
    assert set(sightline.__all__) == shown | told
    assert not set(sightline.__all__) - shown - {"LayerState"}, "a type that code does not name is told in words"
    own = [name for name, value in vars(sightline.Run).items() if callable(value) and not name.startswith("_")]
    methods = [name for name in own if name not in OF_FILES]
    assert {"frame", "row", "masks", "cells", "picture"} <= set(methods)
    assert all(f"run.{name}(" in CODE for name in methods)


def test_every_line_of_the_table_has_a_proof_that_exists() -> None:
    promises = text("SECURITY.md")
    lines = [line for line in promises.split("\n") if line.startswith("| ") and "| proof |" not in line]
    assert len(lines) > 50
    assert [line for line in lines if not re.search(r"\| `tests/[\w/]+\.py::test_\w+` \|$", line)] == []
    for file, name in set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", promises)):
        assert name in {node.name for node in ast.parse(text(file)).body if isinstance(node, ast.FunctionDef)}, file


def page(name: str) -> str:
    return text(f"docs/reference/{name}.md")


def test_every_page_is_current_and_none_is_left_over(tmp_path: Path) -> None:
    """In a process of its own: other tests may have registered things."""
    run_python([str(DOCS / "reference.py"), str(tmp_path)], cwd=REPOSITORY).check_returncode()
    made = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    assert set(made) == {path.stem for path in (DOCS / "reference").iterdir()}
    assert [name for name in made if page(name) != made[name]] == [], "stale: run make reference"


def test_every_column_and_every_name_that_a_user_can_write_is_there() -> None:
    scored = [column for _, kind in SCORERS.items() for column in kind.columns]
    for field in [*ROW_COLUMNS, *scored, *IMAGE_COLUMNS]:
        assert re.search(rf"^\| `{field.name}` \| [\w ]+ \| .*\. \|$", page("rows"), re.MULTILINE), field.name
    for names, where, written in (
        (SELECTORS, "selectors", "\n## `{}`\n"),
        (METRICS, "metrics", "| `{}` |"),
        (INTERVENTIONS, "interventions", "`+{}"),
        (AuditConfig.model_fields, "config", "| `{}` |"),
        (sightline.__all__, "python", "\n## `{}`\n"),
    ):
        assert [name for name in names if written.format(name) not in page(where)] == [], where


def commands(node: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, node
    for below in node.list_commands(None) if hasattr(node, "list_commands") else ():
        child = node.get_command(None, below)
        if not child.hidden:
            yield from commands(child, f"{name} {below}")


def test_every_command_stands_there_with_its_options() -> None:
    for name, node in commands(typer.main.get_command(app), "sightline"):
        section = page("commands").split(f"\n## `{name}`\n")[1].split("\n## ")[0]
        for parameter in node.params:
            assert parameter.hidden or parameter.opts[0] in section or parameter.metavar in section, parameter.name


def test_every_registry_is_found_once_and_every_thing_in_it_says_what_it_is(reference: ModuleType) -> None:
    homes = {home.registry: home for home in reference.homes()}
    assert homes[SELECTORS].module == "sightline.selectors"
    assert homes[INTERVENTIONS].variable == "INTERVENTIONS"
    assert len(homes) == len(reference.homes()), "a registry is found in two places"
    for registry in homes:
        assert f"\n## {registry.kind}\n" in page("registries")
    lines = re.findall(r"^\| `[^`]+` \| .*$", page("registries"), re.MULTILINE)
    assert len(lines) > len(SELECTORS.names())
    assert [line for line in lines if line.endswith("|  |")] == []
    listed = re.findall(r"^\| `(sightline\.\w+)` \|", text("docs/architecture.md"), re.MULTILINE)
    assert {home.registry._group for home in reference.homes()} - {None} <= set(listed)
    assert len(listed) == len(set(listed))
    for home in reference.homes():  # and how to add to it
        line = next(
            line for line in text("CONTRIBUTING.md").splitlines() if f"| `{home.variable}`, `sightline." in line
        )
        place = re.search(r"`((?:src|packages)/(sightline[\w/]+))(/|\.toml)`", line)
        assert place is not None
        assert (REPOSITORY / f"{place[1]}{place[3]}").exists(), line
        assert home.registry._package in (None, place[2].replace("/", "."))
        assert home.registry._group in (None, re.findall(r"`(sightline\.\w+)`", line)[0])


def test_prose_cells_and_signatures_read_as_they_were_written() -> None:
    wording = importlib.import_module("wording")
    assert wording.prose("a_i * <b>\n  ``x_y`` [0, 1]") == r"a\_i \* \<b\> ``x_y`` \[0, 1\]"
    assert wording.code("int | None") == "<code>int &#124; None</code>"
    assert wording.code("int") == "`int`"

    def example(self: object, a: int | None, *, b: str = "x") -> list[int]:
        return []

    assert wording.signature(example) == "(a: int | None, *, b: str = 'x') -> list[int]"


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    files = ["--config-file", str(config), "--site-dir", str(site)]
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", *files]
    return subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=False)


def test_every_page_is_built_needs_no_network_and_the_readme_is_the_start(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = build(REPOSITORY / "mkdocs.yml", site)
    assert done.returncode == 0, done.stderr
    written = {path.relative_to(DOCS).with_suffix(".html") for path in DOCS.rglob("*.md")}
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    assert {path.name for path in built - written} == {
        "404.html", "index.html", "changelog.html", "contributing.html", "security.html"
    }  # fmt: skip
    assert written <= built
    assert not list(site.rglob("*.py")), "generators are no pages"
    for path in site.rglob("*.html"):
        outside = r"<(?:script|link|img|iframe|source)\b[^>]*?(?:src|href)=\"?((?:https?:)?//[^\" >]*)"
        assert re.findall(outside, path.read_text()) == [], path.name
    for path in site.rglob("*.css"):
        assert not re.search(r"url\(\"?(?:https?:)?//", path.read_text()), path.name
    start = (site / "index.html").read_text(encoding="utf-8")
    for words in ("Audit visual-token pruning", 'href="cost.html"', 'href="contributing.html"'):
        assert words in start
    assert 'src="pictures/view-receipt.jpg"' in start


def test_a_link_into_nothing_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[gone](gone.md)\n")
    without_pages = text("mkdocs.yml").split("nav:\n  - Start")[0].replace("hooks:\n  - docs/root_pages.py\n", "")
    (tmp_path / "mkdocs.yml").write_text(without_pages)
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "gone.md" in done.stderr


def test_the_picture_of_the_layers_names_exactly_the_units_of_the_table() -> None:
    drawn = ElementTree.parse(DOCS / "pictures" / "layers.svg").getroot()
    rows = [element for element in drawn.iter("{http://www.w3.org/2000/svg}text") if element.get("class") == "units"]
    from_below = sorted(rows, key=lambda row: -float(row.attrib["y"]))
    assert [(row.text or "").split() for row in from_below] == layers()
