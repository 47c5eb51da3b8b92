"""The LaTeX that tables write compiles, and nothing leaves the page. Without TeX: skipped; where CI is set: failed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from sightline.core.table import Table, TableColumn, latex_escape
from sightline.paper.lines import Measured
from sightline.paper.paper_table import PAPER_TABLES, in_order
from sightline.paper.printed import PrintedLine, PrintedTable, measured
from sightline.paper.study import Study

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
