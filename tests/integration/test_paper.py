"""Every table of the paper, end to end: the demonstration with tiny checkpoints."""

import csv
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sightline.core.table import Table, TableColumn, latex_escape
from sightline_paper import PAPER_TABLES, Study, StudyOptions
from sightline_paper.lines import Measured
from sightline_paper.paper_table import in_order
from sightline_paper.printed import PrintedLine, PrintedTable, measured
from tests.command_line import sightline
from tests.refusals import Refused
from tests.warm_python import warm_children

pytestmark = pytest.mark.xdist_group("paper")
IMAGES = 6
"""The fewest with which every line of every table is measured."""
DRAWS = 100
NUMBERS = in_order(PAPER_TABLES)
WITHOUT_STAND_IN = {
    "PLAUSIBLE": {"no decoy is a word of another image"},
    "GSR": {"GSR-Bench was not given: name its folder with --gsr"},
    "STRATA": {"all cells are of one size here"},
}
"""What so few drawn pages cannot show."""


TINY = {"qwen": "qwen3vl", "llava": "llava", "internvl": "internvl"}


def options_of(data: Path, out: Path) -> list[str]:
    """The options of a command about the study."""
    models = [part for folder in TINY.values() for part in ("--models", str(data / "tiny" / folder))]
    known = ["--demo", "--limit", str(IMAGES), "--draws", str(DRAWS), "--clip", str(data / "tiny/clip")]
    return ["--out", str(out), *known, "--device", "cpu", *models]


@pytest.fixture(scope="module")
def study(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of ``paper run all --demo`` and what was printed.

    Rows of all tables are computed beforehand, each run once instead of amended by one table after the other: that
    tables amend one another's runs is a test of ``tests/unit/paper``. Three tiny models answer.
    """
    out = tmp_path_factory.mktemp("paper") / "study"
    tiny = data / "tiny"
    models = {name: str(tiny / folder) for name, folder in TINY.items()}
    options = StudyOptions(demo=True, limit=IMAGES, clip=str(tiny / "clip"), run={"device": "cpu"})
    needs = (need for number in NUMBERS for need in PAPER_TABLES.get(number).needs())
    Study(out, models, options=options).compute(needs)
    with warm_children():
        return out, sightline("paper", "run", "all", *options_of(data, out)).output


def lines(folder: Path, number: str) -> list[dict[str, str]]:
    with open(folder / "tables" / f"table-{number.lower()}.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("number", NUMBERS)
def test_every_line_of_a_table_is_measured(study: tuple[Path, str], number: str) -> None:
    cells = lines(study[0], number)
    missing = {cell["why_not"] for cell in cells if cell["why_not"]}
    assert missing == WITHOUT_STAND_IN.get(number, set())
    table = PAPER_TABLES.get(number)
    assert len(cells) == sum(len(block.lines) * len(block.columns) for block in table.blocks)
    for suffix in ("md", "tex"):
        text = (study[0] / "tables" / f"table-{number.lower()}.{suffix}").read_text(encoding="utf-8")
        assert "DEMONSTRATION" in text


def test_the_page_holds_all_tables_of_shared_runs_and_says_that_they_are_stand_ins(study: tuple[Path, str]) -> None:
    folder, said = study
    page = (folder / "paper.html").read_text(encoding="utf-8")
    assert page.count('<section id="table-') == len(NUMBERS)
    assert "DEMONSTRATION" in page
    assert "DEMONSTRATION" in said

    runs = {folder.name for folder in (folder / "runs").iterdir()}
    assert {"qwen-confirmation", "qwen-development", "llava-confirmation", "internvl-development"} <= runs
    needed = {need.folder for number in NUMBERS if number != "GSR" for need in PAPER_TABLES.get(number).needs()}
    assert len(runs) == len(needed)

    assert all(" for " in cell["line"] for cell in lines(folder, "1"))
    assert "qwen3vl for Qwen3-VL-8B" in page

    full = [cell for cell in lines(folder, "1") if " · Full · " in cell["line"] and cell["column"] == "PosECR"]
    assert len(full) == 3
    assert {float(cell["measured"]) for cell in full} == {1.0}

    told = said.splitlines()
    assert not [line for line in told if line.startswith(("holds ", "fails ", "open "))]
    assert sum(line.startswith("not judged ") for line in told) >= 90
    unmeasured = [line for line in told if line.startswith("not measured ")]
    few = ("GSR-Bench was not given", "too few positives with both")
    assert all(any(reason in line for reason in few) for line in unmeasured), unmeasured

    assert sightline("paper", "list", "--out", folder).output.count("measured (demo)") == len(NUMBERS)


def test_a_second_run_computes_nothing_and_prints_the_same(study: tuple[Path, str], data: Path, tmp_path: Path) -> None:
    """In a copy that knows of this table alone, since a command prints all tables of its folder anew."""
    out = tmp_path / "study"
    shutil.copytree(study[0], out)
    record = json.loads((out / "study.json").read_text(encoding="utf-8"))
    (out / "study.json").write_text(json.dumps({**record, "tables": ["S5"]}), encoding="utf-8")
    before = {file: file.stat().st_mtime_ns for file in (out / "runs").rglob("*.parquet")}
    assert before
    (out / "tables" / "table-s5.csv").unlink()
    sightline("paper", "run", "S5", *options_of(data, out))
    assert {file: file.stat().st_mtime_ns for file in (out / "runs").rglob("*.parquet")} == before
    assert lines(out, "S5") == lines(study[0], "S5")


def test_show_prints_needs_commands_and_published_values(refused: Refused) -> None:
    for number in NUMBERS:
        shown = sightline("paper", "show", number)
        table = PAPER_TABLES.get(number)
        assert f"Table {number}. {table.title}" in shown.output
        assert "Published" in shown.output
        for need in table.needs():
            assert f"runs/{need.folder}" in shown.output
    refused("S18", sightline, "paper", "show", "S99")  # those there are


HEAD = r"""\documentclass[10pt]{article}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs,graphicx}
\begin{document}
"""
EVERY = "".join(map(chr, range(33, 127))) + "−–—≥≤→·×±Δβρ…“”‘’€é"
"""What titles, arms and answers may contain."""


@pytest.fixture(scope="session")
def tex() -> str:
    program = shutil.which("pdflatex")
    if program is None:
        reason = "there is no pdflatex here; install it, for example with tests/integration/install_tex.sh"
        if os.environ.get("CI"):
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return program


def compiled(tex: str, folder: Path, body: str) -> str:
    """The log of a document; the first error where it has one."""
    (folder / "all.tex").write_text(HEAD + body + "\\end{document}\n", encoding="utf-8")
    done = subprocess.run(
        [tex, "-interaction=nonstopmode", "-halt-on-error", "all.tex"], cwd=folder, capture_output=True, check=False
    )
    log = (folder / "all.log").read_text(encoding="latin-1")
    assert done.returncode == 0, log[log.find("\n!") :][:600]
    return log


def filled(printed: PrintedTable) -> PrintedTable:
    """The published values as if they had been measured, each with an interval: the widest that a table gets."""

    def line(found: PrintedLine) -> PrintedLine:
        values = [cell.value if isinstance(cell, Measured) else cell for cell in found.line.published]
        words = tuple(f"random weights for {word}" if not place else word for place, word in enumerate(found.words))
        return replace(found, words=words, cells=tuple(Measured(value, -0.125, 0.125) for value in values), why_not="")

    blocks = tuple(replace(block, lines=tuple(map(line, block.lines))) for block in printed.blocks)
    return replace(printed, blocks=blocks, demo=True)


def test_every_table_of_the_paper_compiles_within_the_page(tex: str, tmp_path: Path) -> None:
    study = Study(tmp_path / "study", {})
    tables = [filled(measured(study, PAPER_TABLES.get(number))) for number in in_order(PAPER_TABLES)]
    log = compiled(tex, tmp_path, "\n\\clearpage\n".join(table.latex() for table in tables))
    assert re.findall(r"Overfull \\hbox \(([0-9.]+)pt too wide\)", log) == []
    assert "Missing character" not in log
    assert "Float too large" not in log


def test_every_character_of_a_report_table_is_set(tex: str, tmp_path: Path) -> None:
    words = [EVERY[start : start + 20] for start in range(0, len(EVERY), 20)]
    table = Table("odd", "Odd <signs> | 100%", "", [TableColumn("a", "A_1 & B")], pd.DataFrame({"a": words}))
    log = compiled(tex, tmp_path, table.latex())
    assert "Missing character" not in log
    # In TeX's own encoding these three are a dash and inverted marks, unless they are mathematics.
    assert latex_escape("a|b<c>d") == "a$|$b$<$c$>$d"
