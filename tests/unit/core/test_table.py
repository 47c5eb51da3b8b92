"""Tables on a terminal and in files, their cells as text, and files that are kept from run to run."""

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from rich.text import Text

from sightline.core.cache import remember
from sightline.core.table import Kind, NamedRun, Table, TableColumn, format_range, format_value, print_rows
from sightline.core.text import as_text, from_text, without_formulas
from sightline.errors import SightlineError
from sightline.progress import Progress, SafeConsole


@pytest.fixture
def table() -> Table:
    frame = pd.DataFrame(
        {
            "arm": ["a_b|c<i>", "full"],
            "score": [0.1 + 0.2, float("nan")],
            "score_low": [0.25, float("nan")],
            "score_high": [0.375, float("nan")],
            "n": [12345, 2],
        }
    )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("score", "Score & more", "score", interval=True),
        TableColumn("n", "n", "count"),
    ]
    return Table("demo", "A 100% title", "Caption with $ and _.", columns, frame)


def text_on(console: SafeConsole) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def printed(console: SafeConsole) -> list[str]:
    return [line.rstrip() for line in text_on(console).splitlines()]


def console_of(width: int, **settings: bool) -> SafeConsole:
    return SafeConsole(file=io.StringIO(), width=width, **settings)


def test_a_terminal_shows_values_beside_their_intervals(table: Table) -> None:
    console = console_of(120)
    table.terminal(console)
    assert printed(console) == [
        "A 100% title",
        "                        Score",
        "                            &",
        "Arm                      more       n",
        "a_b|c<i>  0.300 (0.250–0.375)  12\u202f345",
        "full                        –       2",
    ]


def test_on_a_narrow_terminal_words_fold_and_numbers_stay_whole(table: Table) -> None:
    console = console_of(44)
    replace(table, title="", frame=table.frame.assign(arm=["a" * 30, "full"])).terminal(console)
    lines = printed(console)
    assert "a" * 30 not in "".join(lines), "the arm is folded"
    assert max(map(len, lines)) <= 44
    assert any(line.endswith("0.300  12\u202f345") for line in lines)
    assert "(0.250–0.375)" in "".join(lines), "the interval stands below"


def test_panels_on_a_terminal_share_their_widths_and_one_header(table: Table) -> None:
    console = console_of(120)
    frame = table.frame.assign(kind=["A. one", "B. other"])
    replace(table, title="", frame=frame, panel="kind").terminal(console)
    lines = printed(console)
    assert [line for line in lines if line in ("one", "other")] == ["one", "other"]
    assert sum("Arm" in line for line in lines) == 1
    ends = [len(line) for line in lines if line.startswith(("a_b", "full"))]
    assert ends[0] == ends[1]


def test_lines_of_words_print_as_they_stand() -> None:
    console = console_of(80, force_terminal=True)
    rows: list[list[str | Text]] = [
        [Text("ok", style="green"), "[bold] is no markup", "3"],
        ["failed", "two\nlines", "14"],
    ]
    print_rows(console, ["", "what", TableColumn("n", "all of them", "count")], rows, title="Title", gap=1)
    text = text_on(console)
    assert "[bold] is no markup" in text
    assert "\x1b[32mok" in text, "a cell keeps its own style"
    bare = console_of(80)
    print_rows(bare, ["", "what", "n"], rows, header=False)
    assert printed(bare) == ["ok      [bold] is no markup  3", "failed  two                  14", "        lines"]


def test_every_format_is_written_with_what_it_has_to_escape(table: Table, tmp_path: Path) -> None:
    table.write(tmp_path / "tables")
    written = {path.suffix: path.read_text(encoding="utf-8") for path in (tmp_path / "tables").iterdir()}
    assert sorted(written) == [".csv", ".md", ".tex"]
    first, second = csv.DictReader(io.StringIO(written[".csv"]))
    assert float(first["score"]) == 0.1 + 0.2, "full precision"
    assert (first["arm"], first["score_low"], first["score_high"]) == ("a_b|c<i>", "0.25", "0.375")
    assert second["score"] == ""
    line = next(line for line in written[".md"].splitlines() if "a_b" in line)
    assert "a_b\\|c&lt;i&gt;" in line
    assert "0.300 (0.250–0.375)" in line
    assert line.replace("\\|", "").count("|") == 4
    latex = written[".tex"]
    assert latex.startswith(r"\begin{table*}")
    assert r"a\_b$|$c$<$i$>$ & 0.300 & " in latex
    assert r"Score \& more" in latex
    assert r"{\scriptsize 0.250--0.375}" in latex
    assert r"\resizebox{\textwidth}" in latex
    assert latex.index(r"\end{tabular}") < latex.index(r"\caption{A 100\% title. Caption with \$ and \_.}")
    assert latex.count(r"\\") == 4, "heading, two rows, and the small print of the one that has an interval"


def test_html_cells_carry_the_sort_value_and_repeated_arms_are_named_once(table: Table) -> None:
    first, second = table.cells()
    assert float(first[1].sort) == 0.1 + 0.2
    assert (second[1].text, second[1].sort, second[1].interval) == ("–", "", "")
    frame = pd.DataFrame({"arm": ["a", "a", "b"], "third": ["small", "large", "small"]})
    columns = [TableColumn("arm", "Arm"), TableColumn("third", "Third")]
    several = Table("demo", "Title", "Caption.", columns, frame, repeated=("arm",))
    (everything,) = several.panels()
    assert [row[0].again for row in everything.rows] == [False, True, False]
    assert "|  | large |" in several.markdown()
    assert several.csv() == "arm,third\na,small\na,large\nb,small\n"


def test_values_and_ranges_as_printed() -> None:
    values: list[tuple[object, Kind, str]] = [
        (-0.014, "signed", "−0.014"),
        (0.02, "signed", "+0.020"),
        (-0.0001, "signed", "0.000"),
        (0.131, "percent", "13.1%"),
        (1e-9, "p", "<0.001"),
        (float("inf"), "score", "–"),
        (None, "count", "–"),
        (9999, "count", "9999"),
        (10_000, "count", "10\u202f000"),
        (pd.NA, "count", "–"),
        (123.456, "number", "123"),
    ]
    assert [format_value(value, kind) for value, kind, _ in values] == [text for _, _, text in values]
    ranges: list[tuple[float, float, Kind, str]] = [
        (-0.014, 0.02, "signed", "−0.014 to +0.020"),  # no sign is taken for a dash
        (0.1, 0.2, "percent", "10.0–20.0%"),
        (0.1, float("nan"), "score", ""),
        (-0.00037, 0.00037, "signed", "−0.0004 to +0.0004"),
        (0.99996, 1.0, "score", "0.99996–1.00000"),
    ]
    assert [format_range(low, high, kind) for low, high, kind, _ in ranges] == [text for *_, text in ranges]


RUNS = (NamedRun("qwen", "runs-q", "Qwen3-VL"), NamedRun("llava", "runs-l", "LLaVA"))


def panelled() -> Table:
    frame = pd.DataFrame(
        {
            "arm": ["qwen · target:0.3", "qwen · protected:0.3", "llava · target:0.3"],
            "arm_name": ["target:0.3", "protected:0.3", "target:0.3"],
            "panel": ["A. Free", "C. Oracles & co", "A. Free"],
            "score": [0.5, 0.9, 0.6],
        }
    )
    columns = [TableColumn("arm_name", "Arm"), TableColumn("score", "Score", "score")]
    return Table("demo", "Title", "Caption.", columns, frame, panel="panel")


def test_model_and_arm_are_columns_of_their_own_in_csv(table: Table) -> None:
    rows = list(csv.DictReader(io.StringIO(panelled().csv(RUNS))))
    assert [(row["run"], row["model"], row["arm"]) for row in rows] == [
        ("runs-q", "Qwen3-VL", "target:0.3"),
        ("runs-q", "Qwen3-VL", "protected:0.3"),
        ("runs-l", "LLaVA", "target:0.3"),
    ]
    one = NamedRun("", "runs-q", "Qwen3-VL")
    rows = list(csv.DictReader(io.StringIO(table.csv([one]))))
    assert list(rows[0])[:2] == ["model", "arm"]
    assert {row["model"] for row in rows} == {"Qwen3-VL"}
    assert table.csv(RUNS) == table.csv(), "its arms belong to none of these runs"


def test_rows_of_a_panel_stand_together_under_its_heading_in_every_format() -> None:
    free, oracles = panelled().panels()
    assert (free.heading, [row[0].text for row in free.rows]) == ("Free", ["target:0.3", "target:0.3"])
    assert (oracles.heading, [row[0].text for row in oracles.rows]) == ("Oracles & co", ["protected:0.3"])
    latex = panelled().latex()
    assert r"\multicolumn{2}{@{}l}{\textit{Oracles \& co}} \\" in latex
    assert latex.index("{Free}") < latex.index("0.600") < latex.index("Oracles")
    assert "| **Oracles & co** |  |" in panelled().markdown()


# Cells of tables: no text is a formula, and every text can be had back.


def test_a_formula_becomes_text_and_comes_back_and_everything_else_stays() -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)"):
        assert as_text(text) == f"'{text}"
        assert from_text(as_text(text)) == text
    for value in ("target:0.3", "-0.25", "+3", "1e-3", "", "'quoted'", 5, -0.5, None, True):
        assert as_text(value) is value
        assert not isinstance(value, str) or from_text(value) == value
    frame = pd.DataFrame({"arm": ["=1+1", "full", None], "value": [-1.0, 2.0, 3.0], "=x": ["a", "@b", "-1"]})
    assert without_formulas(frame).to_csv(index=False) == "arm,value,'=x\n'=1+1,-1.0,a\nfull,2.0,'@b\n,3.0,-1\n"


def test_a_cache_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(SightlineError, match=r"cannot remember a result in .*SIGHTLINE_CACHE"):
        remember(tmp_path / "cache" / "boxes" / "result.json", b"{}")


LONG_ARMS = ["full", "policy:evidence_saturation:target:0.3/0.7:threshold=1.2", "oracle_evidence:0.3"]
HEADINGS = ["Keep", "Relative", "Score", "Accuracy", "AUC", "ECR", "Unsupported", "select ms", "language ms"]


@pytest.mark.parametrize(("width", "blocks"), [(200, 1), (120, 1), (80, 2), (50, 3)])
def test_nothing_is_cut_and_no_name_is_broken_within_a_word(width: int, blocks: int) -> None:
    values = {name: [1.0, 1000.5 + place, 0.25] for place, name in enumerate(HEADINGS)}
    columns = [TableColumn("arm", "arm"), *(TableColumn(name, name, "score") for name in HEADINGS)]
    console = console_of(width)
    Table("x", "", "", columns, pd.DataFrame({"arm": LONG_ARMS, **values})).terminal(console, gap=1)
    lines = printed(console)
    assert max(map(len, lines)) <= width
    assert sum(line.startswith("arm ") for line in lines) == blocks, "columns without room stand below"
    words = " ".join(lines).split()
    assert [word for name in HEADINGS for word in name.split() if word not in words] == []
    assert [text for place in range(len(HEADINGS)) if (text := f"{1000.5 + place:.3f}") not in words] == []
    pieces = {piece for line in lines for piece in re.split(r"[\s:/,+_=]", line.split(" ")[0]) if piece}
    told = {piece for arm in LONG_ARMS for piece in re.split(r"[\s:/,+_=]", arm)}
    assert pieces <= told | {"arm"}


@pytest.mark.parametrize(("width", "behind"), [(140, "after"), (80, "after"), (60, "left")])
def test_beside_a_bar_every_time_stands_behind_its_word(
    width: int, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    monkeypatch.setattr(
        "sightline.progress.SafeConsole", lambda **_: SafeConsole(file=said, force_terminal=True, width=width)
    )
    with Progress("auditing", 1200, "rows") as bar:
        bar._started -= 4.0
        bar.advance(16)
    line = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", said.getvalue()).strip().split("\r")[-1]
    assert "…" not in line
    assert re.search(r"16/1200 [\d.]+ rows/s left [-\d:]+", line)
    assert re.search(rf"{behind} [-\d:]+\s*$", line)
