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
from sightline.progress import Progress, SafeConsole
from tests.refusals import Refused


@pytest.fixture
def table() -> Table:
    frame = pd.DataFrame(
        {
            "arm": ["a_b|c<i>", "full"], "score": [0.1 + 0.2, float("nan")], "score_low": [0.25, float("nan")],
            "score_high": [0.375, float("nan")], "n": [12345, 2],
        }
    )  # fmt: skip
    score = TableColumn("score", "Score & more", "score", interval=True)
    columns = [TableColumn("arm", "Arm"), score, TableColumn("n", "n", "count")]
    return Table("demo", "A 100% title", "Caption with $ and _.", columns, frame)


def console_of(width: int, **settings: bool) -> SafeConsole:
    return SafeConsole(file=io.StringIO(), width=width, **settings)


def printed(console: SafeConsole) -> list[str]:
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


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
    replace(table, title="", frame=table.frame.assign(kind=["A. one", "B. other"]), panel="kind").terminal(console)
    lines = printed(console)
    assert [line for line in lines if line in ("one", "other")] == ["one", "other"]
    assert sum("Arm" in line for line in lines) == 1
    ends = [len(line) for line in lines if line.startswith(("a_b", "full"))]
    assert ends[0] == ends[1]


def test_lines_of_words_print_as_they_stand() -> None:
    console, bare = console_of(80, force_terminal=True), console_of(80)
    rows: list[list[str | Text]] = [
        [Text("ok", style="green"), "[bold] is no markup", "3"],
        ["failed", "two\nlines", "14"],
    ]
    print_rows(console, ["", "what", TableColumn("n", "all of them", "count")], rows, title="Title")
    text = "\n".join(printed(console))
    assert "[bold] is no markup" in text
    assert "\x1b[32mok" in text, "a cell keeps its own style"
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
    for part in (r"a\_b$|$c$<$i$>$ & 0.300 & ", r"Score \& more", r"{\scriptsize 0.250--0.375}"):
        assert part in latex
    assert r"\resizebox{\textwidth}" in latex
    assert latex.index(r"\end{tabular}") < latex.index(r"\caption{A 100\% title. Caption with \$ and \_.}")
    assert latex.count(r"\\") == 4, "heading, two rows, and the small print of the one that has an interval"


def test_html_cells_carry_the_sort_value_and_repeated_arms_are_named_once(table: Table) -> None:
    one, other = table.cells()
    assert float(one[1].sort) == 0.1 + 0.2
    assert (other[1].text, other[1].sort, other[1].interval) == ("–", "", "")
    frame = pd.DataFrame({"arm": ["a", "a", "b"], "third": ["small", "large", "small"]})
    columns = [TableColumn("arm", "Arm"), TableColumn("third", "Third")]
    several = Table("demo", "Title", "Caption.", columns, frame, repeated=("arm",))
    (everything,) = several.panels()
    assert [row[0].again for row in everything.rows] == [False, True, False]
    assert "|  | large |" in several.markdown()
    assert several.csv() == "arm,third\na,small\na,large\nb,small\n"


def test_values_and_ranges_as_printed() -> None:
    values: list[tuple[object, Kind, str]] = [
        (-0.014, "signed", "−0.014"), (0.02, "signed", "+0.020"), (-0.0001, "signed", "0.000"),
        (0.131, "percent", "13.1%"), (1e-9, "p", "<0.001"), (123.456, "number", "123"),
        (9999, "count", "9999"), (10_000, "count", "10\u202f000"),
        (float("inf"), "score", "–"), (None, "count", "–"), (pd.NA, "count", "–"),
    ]  # fmt: skip
    assert [format_value(value, kind) for value, kind, _ in values] == [text for _, _, text in values]
    ranges: list[tuple[float, float, Kind, str]] = [
        (-0.014, 0.02, "signed", "−0.014 to +0.020"),  # no sign is taken for a dash
        (0.1, 0.2, "percent", "10.0–20.0%"),
        (0.1, float("nan"), "score", ""),
        (-0.00037, 0.00037, "signed", "−0.0004 to +0.0004"),
        (0.99996, 1.0, "score", "0.99996–1.00000"),
    ]
    assert [format_range(low, high, kind) for low, high, kind, _ in ranges] == [text for *_, text in ranges]


@pytest.fixture
def panelled() -> Table:
    """Two runs in two panels."""
    names = [("qwen", "target:0.3", "A. Free"), ("qwen", "protected:0.3", "C. Oracles & co"),
             ("llava", "target:0.3", "A. Free")]  # fmt: skip
    frame = pd.DataFrame(
        {
            "arm": [f"{run} · {arm}" for run, arm, _ in names],
            "arm_name": [arm for _, arm, _ in names],
            "panel": [panel for *_, panel in names],
            "score": [0.5, 0.9, 0.6],
        }
    )
    columns = [TableColumn("arm_name", "Arm"), TableColumn("score", "Score", "score")]
    return Table("demo", "Title", "Caption.", columns, frame, panel="panel")


def test_in_csv_model_and_arm_are_columns_of_their_own(table: Table, panelled: Table) -> None:
    runs = (NamedRun("qwen", "runs-q", "Qwen3-VL"), NamedRun("llava", "runs-l", "LLaVA"))
    rows = list(csv.DictReader(io.StringIO(panelled.csv(runs))))
    assert [(row["run"], row["model"], row["arm"]) for row in rows] == [
        ("runs-q", "Qwen3-VL", "target:0.3"), ("runs-q", "Qwen3-VL", "protected:0.3"),
        ("runs-l", "LLaVA", "target:0.3"),
    ]  # fmt: skip
    rows = list(csv.DictReader(io.StringIO(table.csv([NamedRun("", "runs-q", "Qwen3-VL")]))))
    assert list(rows[0])[:2] == ["model", "arm"]
    assert {row["model"] for row in rows} == {"Qwen3-VL"}
    assert table.csv(runs) == table.csv(), "its arms belong to none of these runs"


def test_rows_of_a_panel_stand_together_under_its_heading_in_every_format(panelled: Table) -> None:
    free, oracles = panelled.panels()
    assert (free.heading, [row[0].text for row in free.rows]) == ("Free", ["target:0.3", "target:0.3"])
    assert (oracles.heading, [row[0].text for row in oracles.rows]) == ("Oracles & co", ["protected:0.3"])
    latex = panelled.latex()
    assert r"\multicolumn{2}{@{}l}{\textit{Oracles \& co}} \\" in latex
    assert latex.index("{Free}") < latex.index("0.600") < latex.index("Oracles")
    assert "| **Oracles & co** |  |" in panelled.markdown()


def test_a_formula_becomes_text_and_comes_back_and_everything_else_stays() -> None:
    for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "=HYPERLINK(1)"):
        assert as_text(text) == f"'{text}"
        assert from_text(as_text(text)) == text
    for value in ("target:0.3", "-0.25", "+3", "1e-3", "", "'quoted'", 5, -0.5, None, True):
        assert as_text(value) is value
        assert not isinstance(value, str) or from_text(value) == value
    frame = pd.DataFrame({"arm": ["=1+1", "full", None], "value": [-1.0, 2.0, 3.0], "=x": ["a", "@b", "-1"]})
    assert without_formulas(frame).to_csv(index=False) == "arm,value,'=x\n'=1+1,-1.0,a\nfull,2.0,'@b\n,3.0,-1\n"


def test_a_cache_that_cannot_be_is_one_line(tmp_path: Path, refused: Refused) -> None:
    (tmp_path / "cache").write_text("a file")
    refused("SIGHTLINE_CACHE", remember, tmp_path / "cache" / "boxes" / "result.json", b"{}")


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
    words = set(" ".join(lines).split())
    assert {word for name in HEADINGS for word in name.split()} <= words
    assert {f"{1000.5 + place:.3f}" for place in range(len(HEADINGS))} <= words
    pieces = {piece for line in lines for piece in re.split(r"[\s:/,+_=]", line.split(" ")[0]) if piece}
    assert pieces <= {"arm", *(piece for arm in LONG_ARMS for piece in re.split(r"[\s:/,+_=]", arm))}


@pytest.mark.parametrize(("width", "behind"), [(140, "after"), (80, "after"), (60, "left")])
def test_beside_a_bar_every_time_stands_behind_its_word(
    width: int, behind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = io.StringIO()
    console = SafeConsole(file=said, force_terminal=True, width=width)
    monkeypatch.setattr("sightline.progress.SafeConsole", lambda **_: console)
    with Progress("auditing", 1200, "rows") as bar:
        bar._started -= 4.0
        bar.advance(16)
    line = re.sub(r"\x1b\[[^A-Za-z]*[A-Za-z]", "", said.getvalue()).strip().split("\r")[-1]
    assert "…" not in line
    assert re.search(r"16/1200 [\d.]+ rows/s left [-\d:]+", line)
    assert re.search(rf"{behind} [-\d:]+\s*$", line)
