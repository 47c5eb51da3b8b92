"""The query box: what can be said, what it means, and that nothing else is ever executed."""

from pathlib import Path

import pandas as pd
import pytest
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


@pytest.mark.parametrize(
    ("query", "same"),
    [
        ('arm == "target:0.3" and correct and ecr < 0.1', "arm == 'target:0.3' and correct and ecr < 0.1"),
        ("not correct", "not correct"),
        ("not correct and correct_full", "not correct and correct_full"),
        ('selector in ("random", "grid") or keep == 1', "selector in ('random', 'grid') or keep == 1"),
        ('selector not in ["random"]', "selector not in ['random']"),
        ("0.1 <= ecr < 0.9", "0.1 <= ecr < 0.9"),
        ("k_tokens / n_tokens > 0.4", "k_tokens / n_tokens > 0.4"),
        ("margin < margin_full - 0.2", "margin < margin_full - 0.2"),
        ('"TOTAL" in target_text', "target_text.str.contains('total', case=False)"),
        ("-margin > 0.5", "-margin > 0.5"),
        ("0.5 > margin", "margin < 0.5"),
        ("arm != plain_arm", "arm != plain_arm"),
        ("correct == False", "correct == False"),
        ("n_regions in (1, 2)", "n_regions in (1, 2)"),
        ("legibility is None", "legibility.isna()"),
        ("boxes_ms is None and label > 'm'", "boxes_ms.isna() and label > 'm'"),
        ("boxes_ms >= 0", "boxes_ms >= 0"),
        ("", "index >= 0"),
    ],
)
def test_a_query_means_what_it_says(rows: AskedRows, frame: pd.DataFrame, query: str, same: str) -> None:
    wanted = frame.query(same, engine="python").index.tolist()
    assert rows.matching(query).tolist() == wanted


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("amr == 'full'", "did you mean 'arm'"),
        ("__import__('os').system('true')", "not part of the query language"),
        ("arm.upper() == 'X'", "not part of the query language"),
        ("[x for x in (1,)] == 1", "not part of the query language"),
        ("(lambda: correct)()", "not part of the query language"),
        ("arm[0] == 'f'", "not part of the query language"),
        ("f'{arm}' == 'full'", "not part of the query language"),
        ("margin ** 9999999 > 1", "not part of the query language"),
        ("arm == 1", "texts stand in quotes"),
        ("ecr == 'x'", "texts stand in quotes"),
        ("correct + 1 > 0", "is no number"),
        ("ecr", "not true or false"),
        ("ecr and correct", "not true or false"),
        ("1 == 1", "two fixed values"),
        ("ecr <", "cannot be read"),
        ("ecr == None", "not part of the query language"),
        ("(" * 300 + "correct" + ")" * 300, "cannot be read"),
        ("not " * 80 + "correct", "nested more than"),
        ("correct and " * 300 + "correct", "characters"),
        ("correct := True", "cannot be read"),
        ("ecr < 0.1\nimport os", "cannot be read"),
    ],
)
def test_anything_else_is_refused_in_one_line(rows: AskedRows, query: str, said: str) -> None:
    with pytest.raises(SightlineError, match=said) as caught:
        rows.matching(query)
    assert "\n" not in str(caught.value)


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


def test_rows_are_sorted_with_nulls_last_and_ties_in_order_and_cases_are_the_first_of_every_probe(
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
