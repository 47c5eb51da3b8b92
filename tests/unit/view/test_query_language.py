"""The query box: what can be said, what it means, and that nothing else is ever executed."""

from pathlib import Path

import pandas as pd
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.errors import SightlineError
from sightline.rows.run import load_run
from sightline.view.query import AskedRows
from sightline.view.rows import ProbeBook, RowIndex
from tests.refusals import Refused


@pytest.fixture(scope="module")
def rows(run: Path) -> AskedRows:
    return AskedRows(RowIndex(run).rows, ProbeBook(run))


@pytest.fixture(scope="module")
def frame(run: Path) -> pd.DataFrame:
    frame = load_run(run).frame()
    full = frame[frame["arm"] == "full"].set_index("probe_id")
    return frame.assign(
        margin_full=frame["probe_id"].map(full["margin"]), correct_full=frame["probe_id"].map(full["correct"])
    )


def test_a_query_means_what_it_says_and_anything_else_is_refused(rows: AskedRows, frame: pd.DataFrame) -> None:
    cases: dict[str, list[tuple[str, str]]] = yaml.safe_load(
        Path(__file__).with_name("queries.yaml").read_text("utf-8")
    )
    for query, same in cases["same"]:
        assert rows.matching(query).tolist() == frame.query(same, engine="python").index.tolist(), query
    too_much = [
        ("(" * 300 + "correct" + ")" * 300, "cannot be read"),
        ("not " * 80 + "correct", "nested more than"),
        ("correct and " * 300 + "correct", "characters"),
    ]
    for query, said in (*cases["refused"], *too_much):
        with pytest.raises(SightlineError, match=said) as caught:
            rows.matching(query)
        assert "\n" not in str(caught.value), query


WORDS = st.sampled_from([
    "arm", "ecr", "correct", "margin_full", "question", "'a'", "0.5", "1", "(", ")", "and", "or", "not", "in", "is",
    "None", "<", "==", "!=", "+", "/", "-", ",", "[", "]", "lambda", ":", ".", "x", "**", "if", "else", "True",
])  # fmt: skip


@settings(max_examples=400)
@given(st.lists(WORDS, max_size=9).map(" ".join))
def test_no_text_does_more_than_choose_rows_or_be_refused(rows: AskedRows, query: str) -> None:
    try:
        found = len(rows.matching(query))
    except SightlineError as error:
        found = str(error).count("\n")
    assert 0 <= found <= rows.rows.count


def test_rows_are_sorted_with_nulls_last_and_cases_first(
    rows: AskedRows, frame: pd.DataFrame, refused: Refused
) -> None:
    places = rows.matching("")
    for column, falling in (("ecr", True), ("question", False)):
        wanted = frame.sort_values(column, ascending=not falling, kind="stable").index.tolist()
        assert rows.ordered(places, column, falling).tolist() == wanted
    refused("cannot be sorted by 'x'", rows.ordered, places, "x", False)
    places = rows.listed("not correct", "margin", False, True)
    found = frame.loc[places, "probe_id"].tolist()
    wrong = frame.query("not correct", engine="python").sort_values("margin", kind="stable")["probe_id"]
    assert found == wrong.drop_duplicates().tolist()
