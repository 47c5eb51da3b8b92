"""One vocabulary: a key has one title, kind and explanation; what an arm, an oracle and a panel are called."""

import ast
from collections.abc import Iterator
from pathlib import Path

from sightline.core.selection import NO_BOXES
from sightline.core.table import format_value
from sightline.report import columns
from sightline.rows.reader import oracle_words
from sightline.statistics.metrics import METRICS
from tests.conftest import REPOSITORY
from tests.refusals import Refused

TABLED = (REPOSITORY / "src/sightline/report", REPOSITORY / "packages/sightline_leaderboard")
OTHER_TITLES = {
    ("limited", "all"), ("limited", "kept"), ("scores", "n_probes"), ("changed_answers", "change"),
    ("several_regions", "n_probes"), ("coverage_and_score", "n"), ("coverage_and_score", "advantage"),
    ("legibility_ordering", "n"), ("legibility_ordering", "ecr"), ("legibility_ordering", "legibility"),
    ("legibility_ordering", "advantage"), ("association", "coverage"), ("construct_validity", "n"),
    ("drop_strata", "n"), ("image_dependence", "stratum"), ("edit_region", "accuracy"), ("edit_region", "ecr"),
    ("edit_region", "center_recall"), ("between_runs", "reference_value"), ("between_runs", "value"),
    ("between_runs", "diff"), ("between_runs", "words"), ("at_budget", "tie"), ("field_risk", "n_probes"),
    ("field_risk", "accuracy"), ("read_or_guessed", "n_probes"), ("legibility_law", "n"),
}  # fmt: skip
"""(table, key) of the few columns that a table calls otherwise than the vocabulary: each one is spelled out."""


def calls(name: str) -> Iterator[tuple[Path, ast.Call]]:
    """Every call of a function in the packages whose tables name their columns by key; terminals have their own."""
    for package in TABLED:
        for file in set(package.rglob("*.py")) - {package / "commands.py"}:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
                    yield file, node


def test_a_key_has_one_title_in_a_vocabulary_that_leaves_metrics_their_own(refused: Refused) -> None:
    keys = list(columns.vocabulary())
    assert keys == sorted(keys)
    assert not set(keys) & set(METRICS)
    assert all(column.title for column in columns.vocabulary().values())
    written = [
        f"{file.name}: {ast.unparse(call)}"
        for file, call in calls("TableColumn")
        if all(isinstance(argument, ast.Constant) for argument in call.args[:2])
    ]
    assert written == [], "name the column by its key: table_columns('arm n'), or put it into columns.toml"
    renamed = {
        (file.stem, str(call.args[0].value))
        for file, call in calls("table_column")
        if call.args
        and isinstance(call.args[0], ast.Constant)
        and any(word.arg == "title" and isinstance(word.value, ast.Constant) for word in call.keywords)
    }
    declared = {
        (name, column["key"])
        for name, table in columns.declared_tables().items()
        for column in table["columns"]
        if "title" in column and isinstance(column, dict)
    }
    assert renamed | declared == OTHER_TITLES
    arm, accuracy, change = columns.table_columns("arm accuracy", columns.table_column("change", interval=True))
    assert (arm.title, arm.kind) == ("Arm", "text")
    assert (accuracy.title, accuracy.kind) == (METRICS["accuracy"].label, "score")
    assert (change.title, change.interval) == ("Change", True)
    refused("no_such_column", columns.table_columns, "arm no_such_column")


def test_what_families_panels_oracles_and_values_are_called() -> None:
    for arm, without_budget in (
        ("scope:0.4:alpha=0", "scope:alpha=0"),
        ("target:192t", "target"),
        ("target:0.3/tile", "target/tile"),
        ("scope:64t/tile:alpha=0", "scope/tile:alpha=0"),
        ("full", "full"),
        ("masks:file=0.3/tile", "masks:file=0.3/tile"),
        ("engine:pruning_ratio=30", "engine:pruning_ratio"),
        ("engine:pruning_ratio=30,variant=paper", "engine:pruning_ratio,variant=paper"),
        ("engine:relevance_weight=0.5,pruning_ratio=50", "engine:relevance_weight=0.5,pruning_ratio"),
        ("engine:default", "engine:default"),
    ):
        assert columns.family(arm) == without_budget
    for panel, regimes in (
        (columns.BOX_FREE, ("full", "box-free method", "box-free control")),
        (columns.ASSISTED, ("detector-assisted",)),
        (columns.ORACLES, ("oracle",)),
        (columns.UNKNOWN, ("replay", None, float("nan"))),
    ):
        assert {columns.panel_of(regime) for regime in regimes} == {panel}
    assert oracle_words("annotation") == "(oracle: reads the annotated boxes)"
    assert oracle_words("heavy_jitter") == "(oracle: reads boxes made from the annotation)"
    assert oracle_words(NO_BOXES) == "(oracle: knows what no deployed method could)"
    assert (
        columns.signed({"d": -0.031, "d_low": -0.094, "d_high": 0.031}, "d") == "−0.031 (−0.094 to +0.031, holds zero)"
    )
    assert columns.signed({"d": 0.2, "d_low": 0.1, "d_high": 0.3}, "d") == "+0.200 (+0.100 to +0.300)"
    assert columns.signed({"d": 0.2, "d_low": float("nan"), "d_high": float("nan")}, "d") == "+0.200"
    assert [format_value(value, "percent") for value in (-0.0, -0.25, 1.0)] == ["0.0%", "−25.0%", "100.0%"]
