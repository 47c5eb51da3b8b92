"""One threshold for the whole page: every table of a run is what it is of the same run with its margins moved."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from sightline.commands.report import compare, gate, report
from sightline.errors import SightlineError
from sightline.gate.decisions import gate_runs, junit, markdown
from sightline.probes.probe_file import hash_side
from sightline.report.build import build_report
from sightline.report.cases import mark_rows
from sightline.report.compare import compare_runs
from sightline.report.sections.calibration import thresholds_in_force_table, thresholds_table
from sightline.report.sections.positions import positions_table
from sightline.report.summary import summarise
from sightline.rows import load_run
from sightline.rows.source import read_source
from sightline.rows.thresholds import on_development_side
from sightline.statistics.thresholds import accuracy_optimal, evaluate, risk_constrained
from tests.unit.report.conftest import DRAWS, notes
from tests.unit.report.fake_run import EDITED, PLAIN, make_run

MOVED = 2.0
ARMS = ("full", "target:0.3", "random:0.3")
NOT_OF_ANSWERS = {
    "calibration",
    "thresholds",
    "thresholds_in_force",
    "association",
    "construct_validity",
    "drop_strata",
}
"""Tables about recorded margins, of which moved ones round differently, or about thresholds themselves."""

Edit = Callable[[dict[str, Any]], None]


def moved(by: float, then: Edit = lambda row: None) -> Edit:
    """Every margin moved, and the answer recorded at t = 0 as a run has it."""

    def edit(row: dict[str, Any]) -> None:
        row["margin"] += by
        row["predicted"] = "yes" if row["margin"] >= 0 else "no"
        row["correct"] = row["predicted"] == row["label"]
        then(row)

    return edit


def audits(folder: Path, by: float) -> list[Path]:
    """A run with every intervention, the same arms with detected boxes, and wrong images alone."""

    def detected(row: dict[str, Any]) -> None:
        row["box_source"] = "rapidocr"

    def wrong(row: dict[str, Any]) -> None:
        row |= {"view": "image_mismatch_seed101", "intervention": "image_mismatch_seed101"}

    boxes = {"box_source": "rapidocr", "boxes": {"missing_rate": 0.25}}
    return [
        make_run(folder / "plain", images=24, arms=EDITED, edit_row=moved(by)),
        make_run(folder / "boxes", images=24, arms=ARMS, manifest=boxes, edit_row=moved(by, detected)),
        make_run(folder / "wrong", images=24, arms=("full",), probe_digest="w", edit_row=moved(by - 0.5, wrong)),
    ]


def tables(page: Path) -> dict[str, pd.DataFrame]:
    return {file.stem: pd.read_csv(file) for file in sorted((page.parent / "tables").glob("*.csv"))}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recorded")
    return build_report(audits(folder, 0.0), folder / "out", draws=DRAWS, cases=4)


@pytest.fixture(scope="module")
def high(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same runs of a model that says yes to nearly everything."""
    return audits(tmp_path_factory.mktemp("high"), MOVED)


@pytest.fixture(scope="module")
def named(high: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_report(high, tmp_path_factory.mktemp("named"), threshold=MOVED, draws=DRAWS, cases=4)


@pytest.fixture(scope="module")
def unnamed(high: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Read at t = 0, as they were recorded."""
    return build_report(high, tmp_path_factory.mktemp("unnamed"), draws=DRAWS, cases=4)


def test_every_table_is_at_the_threshold(recorded: Path, named: Path) -> None:
    expected, found = tables(recorded), tables(named)
    assert set(found) == set(expected) | {"thresholds_in_force"}
    assert {"deletion", "image_dependence", "positions", "box_sources", "interventions", "flips"} <= set(expected)
    for name in set(expected) - NOT_OF_ANSWERS:
        left, right = expected[name], found[name]
        if name == "positions":
            assert set(right["comparison"]) == {"2", "own", "compact's"}
            left, right = (part.drop(columns="comparison") for part in (left, right))
            left, right = (
                part.drop(columns=[c for c in part if str(c).startswith("threshold")]) for part in (left, right)
            )
        pd.testing.assert_frame_equal(left, right, check_exact=False, rtol=1e-9, atol=1e-9, obj=name)


def test_without_the_threshold_the_tables_differ(recorded: Path, unnamed: Path) -> None:
    found = tables(unnamed)
    for name in ("main", "paired_differences", "deletion", "image_dependence", "positions", "box_sources", "flips"):
        assert not found[name].equals(tables(recorded)[name]), name


def test_captions_and_notes_name_the_threshold_and_where_it_comes_from(named: Path, recorded: Path) -> None:
    page = named.read_text(encoding="utf-8")
    assert "plain: The threshold is the one that was given, t = 2." in notes(named)
    assert "Answers at t = 2 compared with Full" in page
    assert "the image changes; all at t = 2" in page
    assert re.search(r"(yes|no) \((right|wrong), margin [+−][\d.]+ at t = 2\)", page), "beneath the first picture"
    assert "With the same mask, at t = 2, the position policy" in page
    for name in ("main", "paired_differences", "correct_positive_provenance", "deletion", "box_sources"):
        assert "Answers are at t = 2." in (named.parent / "tables" / f"{name}.md").read_text(), name
        assert "Answers are" not in (recorded.parent / "tables" / f"{name}.md").read_text(), name
    assert "Answers at t = 0 compared with Full" in recorded.read_text(encoding="utf-8")


def test_calibration_describes_the_recorded_likelihoods(named: Path, unnamed: Path) -> None:
    plain = tables(unnamed)["calibration"]
    found = tables(named)["calibration"]
    likelihoods = [name + end for name in ("ece", "brier", "nll") for end in ("", "_low", "_high")]
    pd.testing.assert_frame_equal(plain[likelihoods], found[likelihoods])
    assert (found["yes_rate"] < plain["yes_rate"]).all(), "answers are not recorded but read"


def test_differences_of_margins_do_not_move_with_thresholds_of_their_own(high: list[Path], tmp_path: Path) -> None:
    """Arms are cut at different places here: shifting their margins would change what is compared across arms."""

    def elsewhere(row: dict[str, Any]) -> None:
        row["image_id"] = f"dev-{row['image_id']}"

    there = make_run(tmp_path / "there", images=30, arms=PLAIN, seed=8, edit_row=moved(MOVED, elsewhere))
    before = tables(build_report(high[:1], tmp_path / "before", draws=DRAWS, cases=0))
    after = tables(
        build_report(high[:1], tmp_path / "after", developments=[there], threshold="own-dev", draws=DRAWS, cases=0)
    )
    assert after["thresholds_in_force"]["threshold"].nunique() > 1
    for name in ("association", "construct_validity", "drop_strata"):
        pd.testing.assert_frame_equal(before[name], after[name], obj=name)
    for name in ("logit_drop", "occlusion"):
        supports = [column for column in before[name] if "support" in str(column)]
        assert supports
        pd.testing.assert_frame_equal(before[name][supports], after[name][supports], obj=name)
    assert before["interventions"]["margin_yes"].tolist() == after["interventions"]["margin_yes"].tolist()
    assert before["main"]["auroc"].tolist() == after["main"]["auroc"].tolist()


def test_a_rule_chosen_on_the_split_leaves_the_held_out_images_in_every_table(high: list[Path]) -> None:
    source = read_source(high, threshold="own-dev")
    rows = load_run(high[0]).frame()
    rows = rows[rows["arm"] == "target:0.3"]
    aside = on_development_side(rows)
    own = accuracy_optimal(rows.loc[aside, "label"] == "yes", rows.loc[aside, "margin"]).threshold
    here = rows[~aside]
    line = summarise(source, draws=20).arms.set_index("arm").loc["plain · target:0.3"]
    assert own != 0
    assert line["accuracy"] == evaluate(here["label"] == "yes", here["margin"], own).accuracy
    assert line["n_probes"] == len(here) < len(rows)
    held_out = set(here["image_id"])
    for one in (*source.runs, *source.controls):
        assert set(one.rows["image_id"]) == held_out
    under = source.runs[0].others
    assert set(under.loc[under["plain_arm"] == "target:0.3", "threshold"]) == {own}, "its plain arm's"
    images = rows.loc[aside, "image_id"].nunique()
    assert any(
        f"chosen on {images} images, the development side of the split by image" in note
        and f"judged on the other {len(held_out)}: they alone are in the tables" in note
        for note in source.notes
    )
    assert source.at == "at each arm's threshold"


def test_a_run_of_wrong_images_has_the_thresholds_of_the_run_it_joins(high: list[Path]) -> None:
    source = read_source(high, threshold="full-dev")
    (control,) = source.controls
    plain = source.runs[0]
    assert plain.thresholds is not None
    assert set(control.rows["threshold"]) == set(plain.thresholds["threshold"])


def test_a_run_without_full_borrows_it_from_a_run_like_it(tmp_path: Path) -> None:
    with_full = make_run(tmp_path / "a", images=24, arms=ARMS, edit_row=moved(MOVED))
    without = make_run(tmp_path / "b", images=24, arms=("target:0.3", "grid:0.3"), edit_row=moved(MOVED))
    thresholds = [one.thresholds for one in read_source([with_full, without], threshold="full-dev").runs]
    assert all(table is not None for table in thresholds)
    assert len({value for table in thresholds if table is not None for value in table["threshold"]}) == 1
    with pytest.raises(SightlineError, match=r"arm 'target:0.3': no development row of a full arm"):
        read_source([without], threshold="full-dev")
    shared = [read_source(runs, threshold="shared").runs[-1].thresholds for runs in ([without], [with_full, without])]
    alone, beside = (None if table is None else table["threshold"].tolist() for table in shared)
    assert alone is not None
    assert alone == beside, "a rule that does not need Full is chosen on the run's own rows"


def test_a_run_whose_images_are_all_on_the_development_side_is_refused(tmp_path: Path) -> None:
    dev = next(name for name in map(str, range(100)) if hash_side(name) == "dev")

    def elsewhere(row: dict[str, Any]) -> None:
        row["image_id"] = dev

    run = make_run(tmp_path / "run", images=2, arms=ARMS, edit_row=elsewhere)
    with pytest.raises(SightlineError, match="none is left to be judged; add images"):
        read_source([run], threshold="own-dev")


def test_a_rule_is_chosen_on_the_development_run_and_applied_to_all_images(tmp_path: Path) -> None:
    def elsewhere(row: dict[str, Any]) -> None:
        row["image_id"] = f"dev-{row['image_id']}"

    here = make_run(tmp_path / "here", images=12, arms=ARMS, edit_row=moved(MOVED))
    there = make_run(tmp_path / "there", images=30, arms=ARMS, seed=8, edit_row=moved(MOVED, elsewhere))
    source = read_source([here], developments=[there], threshold="hfpr<=0.1")
    rows, chosen_on = load_run(here).frame(), load_run(there).frame()
    found = summarise(source, draws=20).arms.set_index("arm")
    for arm in ARMS:
        dev, test = (frame[frame["arm"] == arm] for frame in (chosen_on, rows))
        threshold = risk_constrained(dev["label"] == "yes", dev["margin"], 0.1).threshold
        point = evaluate(test["label"] == "yes", test["margin"], threshold)
        assert (found.loc[arm, "accuracy"], found.loc[arm, "hfpr"]) == (point.accuracy, point.hfpr)
        assert found.loc[arm, "n_probes"] == 24
    assert "chosen on 30 images, all of the development run there, and judged on all images here" in source.notes[0]
    operating = thresholds_table(source)
    assert "t with hFPR ≤ 0.1" in set(operating.frame["rule"])
    in_force = thresholds_in_force_table(source)
    assert in_force is not None
    assert in_force.frame["dev_probes"].tolist() == [60, 60, 60]
    assert (in_force.frame["dev_hfpr"] <= 0.1).all()


def test_several_development_runs_of_the_same_weights_are_one(tmp_path: Path) -> None:
    def elsewhere(prefix: str) -> Edit:
        def edit(row: dict[str, Any]) -> None:
            row["image_id"], row["probe_id"] = prefix + row["image_id"], prefix + row["probe_id"]

        return moved(MOVED, edit)

    here = make_run(tmp_path / "here", images=6, arms=ARMS)
    parts = [
        make_run(tmp_path / name, images=15, arms=ARMS, seed=seed, edit_row=elsewhere(name))
        for name, seed in (("first", 8), ("second", 9))
    ]
    full = pd.concat([load_run(part).frame() for part in parts]).query("arm == 'full'")
    (found,) = read_source([here], developments=[*parts, parts[0]], threshold="full-dev").runs
    assert set(found.frame["threshold"]) == {accuracy_optimal(full["label"] == "yes", full["margin"]).threshold}
    assert "chosen on 30 images, all of the development run first, second, and judged" in found.notes[0]


def test_without_a_bound_the_operating_points_say_why_there_is_no_risk(high: list[Path]) -> None:
    table = thresholds_table(read_source(high[:1]))
    assert not table.frame["rule"].str.contains("hFPR").any()
    assert "No threshold within a risk: how much risk is yours to say, for example --threshold 'hfpr<=0.05'" in (
        table.caption
    )
    assert thresholds_in_force_table(read_source(high[:1])) is None


def test_positions_choose_own_thresholds_on_the_images_set_apart(high: list[Path]) -> None:
    split = positions_table(read_source(high[:1]))
    apart = positions_table(read_source(high[:1], threshold="own-dev"))
    assert split is not None
    assert apart is not None
    by_split: Any = split.frame.set_index("comparison")
    by_rule: Any = apart.frame.set_index("comparison")
    assert by_rule.loc["own", "n"] == by_split.loc["own", "n"] < by_split.loc["0", "n"]
    for column in ("threshold_compact", "threshold_preserve", "accuracy_compact", "accuracy_preserve", "flips"):
        assert by_rule.loc["own", column] == by_split.loc["own", column]
    first = by_rule.iloc[0]
    assert first["threshold_compact"] == first["threshold_preserve"] != 0


def test_pictures_show_answers_at_the_threshold(recorded: Path, high: list[Path]) -> None:
    before = mark_rows(read_source(audits_of(recorded)).runs[0])
    after = mark_rows(read_source(high, threshold=MOVED).runs[0])
    for column in ("flip", "unsupported", "rank", "predicted"):
        assert before[column].tolist() == after[column].tolist(), column
    assert after["strength"].to_numpy() == pytest.approx(before["strength"].to_numpy())


def audits_of(page: Path) -> list[Path]:
    return [page.parent.parent / name for name in ("plain", "boxes", "wrong")]


def test_compare_is_at_the_threshold(tmp_path: Path) -> None:
    pages = []
    for by, threshold in ((0.0, None), (MOVED, MOVED)):
        folder = tmp_path / f"{by}"
        a = make_run(folder / "a", images=10, arms=ARMS, edit_row=moved(by))
        b = make_run(folder / "b", images=10, arms=ARMS, edit_row=moved(by + 0.5))
        pages.append(compare_runs(a, b, folder / "out", threshold=threshold, draws=DRAWS, cases=2))
    expected, found = (tables(page) for page in pages)
    for name in ("main", "between_runs", "flips_between_runs", "sameness"):
        pd.testing.assert_frame_equal(expected[name], found[name], rtol=1e-9, atol=1e-9, obj=name)
    assert "Probes whose answer at t = 2 differs from A to B" in pages[1].read_text(encoding="utf-8")


def test_compare_judges_both_runs_on_the_same_held_out_images(tmp_path: Path) -> None:
    a = make_run(tmp_path / "a", images=20, arms=ARMS)
    b = make_run(tmp_path / "b", images=20, arms=ARMS, edit_row=moved(1.0))
    page = compare_runs(a, b, tmp_path / "out", threshold="own-dev", draws=DRAWS, cases=2)
    rows = load_run(a).frame()
    held_out = ~on_development_side(rows[rows["arm"] == "full"])
    assert set(tables(page)["sameness"]["probes"]) == {held_out.sum()}


def test_the_gate_decides_at_the_threshold_and_says_so(high: list[Path], recorded: Path) -> None:
    rules = ["accuracy(full) >= 0.6", "hfpr(target:0.3) <= 0.4", "accuracy(target:0.3) - accuracy(full) >= -0.5"]
    (before,) = gate_runs(audits_of(recorded)[:1], rules, least_n=5, draws=DRAWS)
    (after,) = gate_runs(high[:1], rules, threshold=MOVED, least_n=5, draws=DRAWS)
    (at_zero,) = gate_runs(high[:1], rules, least_n=5, draws=DRAWS)
    values = [[(found.value, found.verdict, found.n) for found in run.outcomes] for run in (before, after, at_zero)]
    assert values[0] == values[1] != values[2]
    sentence = "The threshold is the one that was given, t = 2."
    assert sentence in markdown([after])
    noted = ElementTree.fromstring(junit([after])).findall("testsuite/properties/property")
    assert sentence in [note.get("value") for note in noted]


def test_a_gate_on_the_held_out_side_counts_its_probes_alone(high: list[Path]) -> None:
    rows = load_run(high[0]).frame()
    held_out = int((~on_development_side(rows[rows["arm"] == "full"])).sum())
    (run,) = gate_runs(high[:1], ["accuracy(full) >= 0.1"], threshold="shared", least_n=5, draws=DRAWS)
    assert run.outcomes[0].n == held_out
    (few,) = gate_runs(high[:1], ["accuracy(full) >= 0.1"], threshold="shared", least_n=held_out + 1, draws=DRAWS)
    assert few.outcomes[0].verdict == "refused"


def test_each_model_has_its_rule_and_its_development_run(tmp_path: Path) -> None:
    def of(model: str, prefix: str = "") -> Edit:
        def edit(row: dict[str, Any]) -> None:
            row["model"] = model
            row["image_id"] = prefix + row["image_id"]

        return edit

    manifest = {"model": "other", "weight_digest": "77" * 32}
    one = make_run(tmp_path / "one", images=8, arms=ARMS, edit_row=moved(MOVED))
    two = make_run(tmp_path / "two", images=8, arms=ARMS, manifest=manifest, edit_row=moved(-1.0, of("other")))
    there = make_run(
        tmp_path / "dev", images=20, arms=ARMS, seed=8, manifest=manifest, edit_row=moved(-1.0, of("other", "dev-"))
    )
    asked: dict[str, Any] = {"threshold": ["reader-mini=2", "other=full-dev"], "developments": [there]}
    source = read_source([one, two], **asked)
    assert set(source.runs[0].frame["threshold"]) == {2.0}
    full = load_run(there).frame().query("arm == 'full'")
    expected = accuracy_optimal(full["label"] == "yes", full["margin"]).threshold
    assert set(source.runs[1].frame["threshold"]) == {expected}
    gated = gate_runs([one, two], ["accuracy(full) >= 0.1"], least_n=5, draws=DRAWS, **asked)
    assert [run.outcomes[0].value for run in gated] == [
        run.frame.loc[run.frame["selector"] == "full", "correct"].mean() for run in source.runs
    ]
    alone = read_source([one, two], threshold="other=0.5")
    assert alone.runs[0].rule is None
    assert alone.at == "at each arm's threshold"


@pytest.fixture
def app() -> typer.Typer:
    app = typer.Typer()
    for command in (report, compare, gate):
        app.command()(command)
    return app


def test_the_commands_take_thresholds_and_development_runs(app: typer.Typer, high: list[Path], tmp_path: Path) -> None:
    def elsewhere(row: dict[str, Any]) -> None:
        row["image_id"] = f"dev-{row['image_id']}"

    there = make_run(tmp_path / "there", images=12, arms=ARMS, seed=8, edit_row=moved(MOVED, elsewhere))
    options = ["--threshold", "reader-mini=full-dev", "--development", str(there), "--draws", "100"]
    out = ["--out", str(tmp_path / "out"), "--cases", "2"]
    run = str(high[1])
    for arguments in (
        ["report", run, *out],
        ["compare", run, run, *out],
        ["gate", run, "--rule", "accuracy(full) >= 0.01", "--least-n", "5"],
    ):
        result = CliRunner().invoke(app, [*arguments, *options])
        assert result.exit_code == 0, (arguments, result.output, result.exception)
    assert "The threshold is Full's most accurate one, for all arms" in result.stderr
    assert "all of the development run there" in notes(tmp_path / "out/report.html")


def without_margin(row: dict[str, Any]) -> None:
    row |= dict.fromkeys(("margin", "loss_yes", "loss_no"))


@pytest.mark.parametrize("command", ["report", "compare", "gate"])
@pytest.mark.parametrize(
    ("threshold", "line"),
    [
        (
            "reader-mimi=2",
            "a threshold is given for model 'reader-mimi', which no run has; did you mean 'reader-mini'?",
        ),
        ("full_dev", "'full_dev' is not a threshold; did you mean 'full-dev'?"),
        ("hfpr<=2", "a bound on hFPR must lie in [0, 1], got 2"),
        ("reader-mini=own", "'own' is not a threshold; did you mean 'own-dev'?"),
    ],
)
def test_bad_thresholds_are_one_line(
    app: typer.Typer, run: Path, tmp_path: Path, command: str, threshold: str, line: str
) -> None:
    runs = [str(run)] * (2 if command == "compare" else 1)
    rest = ["--rule", "accuracy(full) >= 0.1"] if command == "gate" else ["--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, [command, *runs, *rest, "--threshold", threshold])
    assert isinstance(result.exception, SightlineError)
    assert line in str(result.exception)
    assert "\n" not in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_rows_without_margins_have_no_threshold(tmp_path: Path, run: Path) -> None:
    bare = make_run(tmp_path / "bare", images=4, arms=ARMS, edit_row=without_margin)
    for rule in ("2.0", "full-dev"):
        with pytest.raises(SightlineError, match=r"^the rows have no margin: .* there is no threshold to set$"):
            read_source([bare], threshold=rule)
    with pytest.raises(SightlineError, match=r"^bare: the rows have no margin"):
        read_source([run, bare], threshold="2.0")


def test_a_threshold_without_a_run_is_refused(tmp_path: Path, cards: dict[str, Path]) -> None:
    with pytest.raises(SightlineError, match="--threshold is about arms and probes of a run; name a run folder too"):
        build_report([], tmp_path, costs=list(cards.values())[:1], threshold=0.0)
