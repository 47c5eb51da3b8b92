"""One threshold for the whole page: every table of a run is what it is of the same run with its margins moved.

Thresholds come from development runs or the run's own images; a report may be limited to a list of probes.
"""

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pandas as pd
import pytest

from sightline.gate.decisions import gate_runs, junit, markdown
from sightline.probes.probe_file import hash_side
from sightline.probes.typed_rows import SignedDecision, write_decisions
from sightline.report.cases import mark_rows
from sightline.report.sections.calibration import thresholds_in_force_table, thresholds_table
from sightline.report.sections.deletion import logit_drop_table, occlusion_table
from sightline.report.sections.interventions import interventions_table
from sightline.report.sections.positions import positions_table
from sightline.report.sections.validity import association_table, construct_table, drop_strata_table
from sightline.report.summary import summarise
from sightline.rows.run import load_run
from sightline.rows.source import read_probe_list, read_source
from sightline.rows.thresholds import on_development_side
from sightline.statistics.thresholds import accuracy_optimal, evaluate, risk_constrained
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.pages import DRAWS, Page, comparison_of, report_on
from tests.runs.yes_no import EDITED, PLAIN, WITHOUT_MARGIN, Edit, changed, make_run

MOVED = 2.0
ARMS = ("full", "target:0.3", "random:0.3")
NOT_OF_ANSWERS = {
    "calibration", "thresholds", "thresholds_in_force", "association", "construct_validity", "drop_strata",
}  # fmt: skip
"""Tables about recorded margins, of which moved ones round differently, or about thresholds themselves."""


def moved(by: float, then: Edit = lambda row: None) -> Edit:
    """Every margin moved, and the answer recorded at t = 0 as a run has it."""

    def edit(row: dict[str, Any]) -> None:
        row["margin"] += by
        row["predicted"] = "yes" if row["margin"] >= 0 else "no"
        row["correct"] = row["predicted"] == row["label"]
        then(row)

    return edit


def elsewhere(row: dict[str, Any]) -> None:
    row["image_id"] = f"dev-{row['image_id']}"


def best_of(rows: pd.DataFrame, arm: str = "full") -> float:
    """The most accurate threshold of an arm."""
    own = rows[rows["arm"] == arm]
    return accuracy_optimal(own["label"] == "yes", own["margin"]).threshold


def audits(folder: Path, by: float) -> list[Path]:
    """A run with every intervention, the same arms with detected boxes, and wrong images alone."""
    detected = changed(box_source="rapidocr")
    wrong = changed(view="image_mismatch_seed101", intervention="image_mismatch_seed101")
    boxes = {"box_source": "rapidocr", "boxes": {"missing_rate": 0.25}}
    return [
        make_run(folder / "plain", images=24, arms=EDITED, edit_row=moved(by)),
        make_run(folder / "boxes", images=24, arms=ARMS, manifest=boxes, edit_row=moved(by, detected)),
        make_run(folder / "wrong", images=24, arms=("full",), probe_digest="w", edit_row=moved(by - 0.5, wrong)),
    ]


@pytest.fixture(scope="module")
def low(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return audits(tmp_path_factory.mktemp("low"), 0.0)


@pytest.fixture(scope="module")
def high(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The same runs of a model that says yes to nearly everything."""
    return audits(tmp_path_factory.mktemp("high"), MOVED)


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A development run of that model over other images."""
    folder = tmp_path_factory.mktemp("development") / "there"
    return make_run(folder, images=30, arms=PLAIN, seed=8, edit_row=moved(MOVED, elsewhere))


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("audited") / "here", images=12, arms=ARMS, edit_row=moved(MOVED))


@pytest.fixture(scope="module")
def recorded(low: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report_on(tmp_path_factory.mktemp("recorded"), *low, cases=4)


@pytest.fixture(scope="module")
def named(high: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    return report_on(tmp_path_factory.mktemp("named"), *high, threshold=MOVED, cases=4)


@pytest.fixture(scope="module")
def unnamed(high: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Read at t = 0, as they were recorded."""
    return report_on(tmp_path_factory.mktemp("unnamed"), *high, cases=4)


def test_every_table_is_at_the_threshold(recorded: Page, named: Page, unnamed: Page) -> None:
    expected, found, at_zero = recorded.frames(), named.frames(), unnamed.frames()
    assert set(found) == set(expected) | {"thresholds_in_force"}
    assert {"deletion", "image_dependence", "positions", "box_sources", "interventions", "flips"} <= set(expected)
    for name in set(expected) - NOT_OF_ANSWERS:
        left, right = expected[name], found[name]
        if name == "positions":
            assert set(right["comparison"]) == {"2", "own", "compact's"}
            told = [c for c in left if c == "comparison" or str(c).startswith("threshold")]
            left, right = (part.drop(columns=told) for part in (left, right))
        pd.testing.assert_frame_equal(left, right, check_exact=False, rtol=1e-9, atol=1e-9, obj=name)
    for name in ("main", "paired_differences", "deletion", "image_dependence", "positions", "box_sources", "flips"):
        assert not at_zero[name].equals(expected[name]), name


def test_captions_and_notes_name_the_threshold_and_where_it_comes_from(named: Page, recorded: Page) -> None:
    assert "plain: The threshold is the one that was given, t = 2." in named.notes
    assert "Answers at t = 2 compared with Full" in named.text
    assert "the image changes; all at t = 2" in named.text
    assert re.search(r"(yes|no) \((right|wrong), margin [+−][\d.]+ at t = 2\)", named.text), "beneath the first picture"
    assert "With the same mask, at t = 2, the position policy" in named.text
    for name in ("main", "paired_differences", "correct_positive_provenance", "deletion", "box_sources"):
        assert "Answers are at t = 2." in named.file(f"{name}.md").read_text(), name
        assert "Answers are" not in recorded.file(f"{name}.md").read_text(), name
    assert "Answers at t = 0 compared with Full" in recorded.text


def test_calibration_describes_the_recorded_likelihoods(named: Page, unnamed: Page) -> None:
    plain, found = unnamed.frame("calibration"), named.frame("calibration")
    likelihoods = [name + end for name in ("ece", "brier", "nll") for end in ("", "_low", "_high")]
    pd.testing.assert_frame_equal(plain[likelihoods], found[likelihoods])
    assert (found["yes_rate"] < plain["yes_rate"]).all(), "answers are not recorded but read"


def test_differences_of_margins_do_not_move_with_thresholds_of_their_own(high: list[Path], there: Path) -> None:
    """Arms are cut at different places here: shifting their margins would change what is compared across arms."""
    plain = read_source(high[:1])
    moved_apart = read_source(high[:1], developments=[there], threshold="own-dev")
    in_force = thresholds_in_force_table(moved_apart)
    assert in_force is not None
    assert in_force.frame["threshold"].nunique() > 1
    for make in (association_table, construct_table, drop_strata_table, logit_drop_table, occlusion_table):
        before, after = make(plain, 60), make(moved_apart, 60)
        assert before is not None
        assert after is not None
        of_answers = before.name in ("logit_drop", "occlusion")
        own = [column for column in before.frame if not of_answers or "support" in str(column)]
        assert own
        pd.testing.assert_frame_equal(before.frame[own], after.frame[own], obj=before.name)
    margins = [interventions_table(source, 60, 0) for source in (plain, moved_apart)]
    first, second = (table.frame["margin_yes"].tolist() for table in margins if table is not None)
    assert first == second
    auroc = [summarise(source, 20).arms["auroc"].tolist() for source in (plain, moved_apart)]
    assert auroc[0] == auroc[1]


def test_a_rule_chosen_on_the_split_leaves_the_held_out_images_in_every_table(high: list[Path]) -> None:
    source = read_source(high, threshold="own-dev")
    rows = load_run(high[0]).frame()
    rows = rows[rows["arm"] == "target:0.3"]
    aside = on_development_side(rows)
    own = best_of(rows[aside], "target:0.3")
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
    joined = read_source(high, threshold="full-dev")
    (control,) = joined.controls
    assert joined.runs[0].thresholds is not None
    assert set(control.rows["threshold"]) == set(joined.runs[0].thresholds["threshold"]), "wrong images have those"


def test_a_run_without_full_borrows_it_from_a_run_like_it(tmp_path: Path, refused: Refused) -> None:
    with_full = make_run(tmp_path / "a", images=24, arms=ARMS, edit_row=moved(MOVED))
    without = make_run(tmp_path / "b", images=24, arms=("target:0.3", "grid:0.3"), edit_row=moved(MOVED))
    thresholds = [one.thresholds for one in read_source([with_full, without], threshold="full-dev").runs]
    assert all(table is not None for table in thresholds)
    assert len({value for table in thresholds if table is not None for value in table["threshold"]}) == 1
    refused("3': no development row of a full arm", read_source, [without], threshold="full-dev")
    shared = [read_source(runs, threshold="shared").runs[-1].thresholds for runs in ([without], [with_full, without])]
    alone, beside = (None if table is None else table["threshold"].tolist() for table in shared)
    assert alone is not None
    assert alone == beside, "a rule that does not need Full is chosen on the run's own rows"


def test_a_run_whose_images_are_all_on_the_development_side_is_refused(tmp_path: Path, refused: Refused) -> None:
    dev = next(name for name in map(str, range(100)) if hash_side(name) == "dev")
    run = make_run(tmp_path / "run", images=2, arms=ARMS, edit_row=lambda row: row.update(image_id=dev))
    refused("none is left to be judged; add images", read_source, [run], threshold="own-dev")


def test_a_rule_is_chosen_on_the_development_run_and_applied_to_all_images(here: Path, there: Path) -> None:
    source = read_source([here], developments=[there], threshold="hfpr<=0.1")
    rows, chosen_on = (load_run(run).frame() for run in (here, there))
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


def test_operating_points_are_chosen_on_the_development_run_or_else_on_a_split(here: Path, tmp_path: Path) -> None:
    fewer = make_run(tmp_path / "fewer", images=30, arms=ARMS[:2], seed=8, edit_row=moved(1.5, elsewhere))
    table = thresholds_table(read_source([here], developments=[fewer]))
    frame = table.frame.set_index(["arm", "rule"])
    rows, chosen_on = (load_run(run).frame() for run in (here, fewer))
    shared = best_of(chosen_on)
    assert shared != 0
    for arm in ARMS:
        own = rows[rows["arm"] == arm]
        line: Any = frame.loc[(arm, "Full's t for all")]
        assert (line["threshold"], line["test"]) == (shared, 24)
        assert line["accuracy"] == evaluate(own["label"] == "yes", own["margin"], shared).accuracy
    assert frame.loc[("target:0.3", "own t"), "threshold"] == best_of(chosen_on, "target:0.3")
    assert ("random:0.3", "own t") not in frame.index, "the development run does not have it"
    assert "all images of the development run fewer" in table.caption
    split = thresholds_table(read_source([here]))
    assert (split.frame["dev"] + split.frame["test"] == 24).all()
    assert "SHA-1" in split.caption
    assert not split.frame["rule"].str.contains("hFPR").any()
    assert (split.frame["rule"] == "t = 0").sum() == len(ARMS)
    assert "No threshold within a risk: how much risk is yours to say, for example --threshold 'hfpr<=0.05'" in (
        split.caption
    )
    assert thresholds_in_force_table(read_source([here])) is None


def test_a_development_run_must_have_other_images_and_the_same_weights(
    here: Path, there: Path, tmp_path: Path, refused: Refused
) -> None:
    refused("chosen on other images than they are judged on", read_source, [here], developments=[here])
    other = make_run(tmp_path / "other", images=4, arms=ARMS, manifest={"weight_digest": "00"}, edit_row=elsewhere)
    refused("has other weights than every run that is reported", read_source, [here], developments=[there, other])
    other_settings: dict[str, Any] = {"manifest": {"dtype": "bfloat16"}, "seed": 8, "edit_row": elsewhere}
    half = make_run(tmp_path / "half", images=6, arms=ARMS, **other_settings)
    notes = read_source([here], developments=[half]).notes
    assert any("half, which has the same weights but other settings" in note for note in notes)


def test_several_development_runs_of_the_same_weights_are_one(here: Path, tmp_path: Path) -> None:
    def part(prefix: str, seed: int) -> Path:
        def edit(row: dict[str, Any]) -> None:
            row["image_id"], row["probe_id"] = prefix + row["image_id"], prefix + row["probe_id"]

        return make_run(tmp_path / prefix, images=15, arms=ARMS, seed=seed, edit_row=moved(MOVED, edit))

    parts = [part("first", 8), part("second", 9)]
    both = pd.concat([load_run(part).frame() for part in parts])
    (found,) = read_source([here], developments=[*parts, parts[0]], threshold="full-dev").runs
    assert set(found.frame["threshold"]) == {best_of(both)}
    assert "chosen on 30 images, all of the development run first, second, and judged" in found.notes[0]


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


def test_pictures_show_answers_at_the_threshold(low: list[Path], high: list[Path]) -> None:
    before = mark_rows(read_source(low).runs[0])
    after = mark_rows(read_source(high, threshold=MOVED).runs[0])
    for column in ("flip", "unsupported", "rank", "predicted"):
        assert before[column].tolist() == after[column].tolist(), column
    assert after["strength"].to_numpy() == pytest.approx(before["strength"].to_numpy())


def test_compare_is_at_the_threshold_and_judges_both_runs_on_the_same_held_out_images(tmp_path: Path) -> None:
    def compared(by: float, **options: Any) -> Page:
        folder = tmp_path / f"{by}{len(options)}"
        a = make_run(folder / "a", images=20, arms=ARMS, edit_row=moved(by))
        b = make_run(folder / "b", images=20, arms=ARMS, edit_row=moved(by + 0.5))
        return comparison_of(folder / "out", a, b, cases=2, **options)

    expected, found = compared(0.0), compared(MOVED, threshold=MOVED)
    for name in ("main", "between_runs", "flips_between_runs", "sameness"):
        pd.testing.assert_frame_equal(expected.frame(name), found.frame(name), rtol=1e-9, atol=1e-9, obj=name)
    assert "Probes whose answer at t = 2 differs from A to B" in found.text
    split = compared(0.0, threshold="own-dev")
    rows = load_run(tmp_path / "0.01" / "a").frame()
    held_out = ~on_development_side(rows[rows["arm"] == "full"])
    assert set(split.frame("sameness")["probes"]) == {held_out.sum()}


def test_the_gate_decides_at_the_threshold_on_the_probes_held_out(low: list[Path], high: list[Path]) -> None:
    rules = ["accuracy(full) >= 0.6", "hfpr(target:0.3) <= 0.4", "accuracy(target:0.3) - accuracy(full) >= -0.5"]
    (before,) = gate_runs(low[:1], rules, least_n=5, draws=DRAWS)
    (after,) = gate_runs(high[:1], rules, threshold=MOVED, least_n=5, draws=DRAWS)
    (at_zero,) = gate_runs(high[:1], rules, least_n=5, draws=DRAWS)
    values = [[(found.value, found.verdict, found.n) for found in run.outcomes] for run in (before, after, at_zero)]
    assert values[0] == values[1] != values[2]
    sentence = "The threshold is the one that was given, t = 2."
    assert sentence in markdown([after])
    noted = ElementTree.fromstring(junit([after])).findall("testsuite/properties/property")
    assert sentence in [note.get("value") for note in noted]
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
    assert set(source.runs[1].frame["threshold"]) == {best_of(load_run(there).frame())}
    gated = gate_runs([one, two], ["accuracy(full) >= 0.1"], least_n=5, draws=DRAWS, **asked)
    assert [run.outcomes[0].value for run in gated] == [
        run.frame.loc[run.frame["selector"] == "full", "correct"].mean() for run in source.runs
    ]
    alone = read_source([one, two], threshold="other=0.5")
    assert alone.runs[0].rule is None
    assert alone.at == "at each arm's threshold"


def test_the_commands_take_thresholds_and_development_runs(here: Path, there: Path, tmp_path: Path) -> None:
    options = ["--threshold", "reader-mini=full-dev", "--development", str(there), "--draws", "100"]
    out = ["--out", str(tmp_path / "out"), "--cases", "2"]
    for arguments in (
        ["report", str(here), *out],
        ["compare", str(here), str(here), *out],
        ["gate", str(here), "--rule", "accuracy(full) >= 0.01", "--least-n", "5"],
    ):
        result = sightline(*arguments, *options)
    assert "The threshold is Full's most accurate one, for all arms" in result.stderr
    assert "all of the development run there" in Page(tmp_path / "out/report.html").notes


@pytest.mark.parametrize("command", ["report", "compare", "gate"])
def test_bad_thresholds_are_one_line(run: Path, tmp_path: Path, command: str, refused: Refused) -> None:
    runs = [run] * (2 if command == "compare" else 1)
    rest = ["--rule", "accuracy(full) >= 0.1"] if command == "gate" else ["--out", tmp_path / "out"]
    for threshold, about in (
        ("reader-mimi=2", "'reader-mimi', which no run has; did you mean 'reader-mini'?"),
        ("reader-mini=own", "'own' is not a threshold; did you mean 'own-dev'?"),
    ):
        refused(about, sightline, command, *runs, *rest, "--threshold", threshold)
    assert not (tmp_path / "out").exists()


def test_rows_without_margins_have_no_threshold(tmp_path: Path, run: Path, refused: Refused) -> None:
    bare = make_run(tmp_path / "bare", images=4, arms=ARMS, edit_row=WITHOUT_MARGIN)
    refused(" there is no threshold to set", read_source, [bare], threshold="full-dev")
    refused("bare: the rows have no margin", read_source, [run, bare], threshold="2.0")


# A report over a list of probes.


def test_a_report_over_a_list_of_probes(here: Path, tmp_path: Path, refused: Refused) -> None:
    wanted = sorted(load_run(here).frame()["probe_id"].unique())[:5]
    listed = tmp_path / "valid.txt"
    listed.write_text("\n".join([*wanted, "", "somebody else's"]))
    (run,) = read_source([here], only=read_probe_list(listed)).runs
    assert sorted(run.frame["probe_id"].unique()) == wanted
    assert len(run.frame) == 5 * len(ARMS)
    assert run.notes[:2] == [
        "limited to 5 of 24 probes, those that valid.txt lists",
        "listed in valid.txt but not in the run: 1",
    ]
    lines = [json.dumps({"sightline_probes": 1}), *(json.dumps({"id": name}) for name in wanted)]
    listed.write_text("\n".join(lines))
    assert read_probe_list(listed).ids == frozenset(wanted), "a probe file is a list too"
    listed.write_text("nothing of this run\n")
    refused("here; its ids look like", read_source, [here], only=read_probe_list(listed))


@pytest.mark.parametrize(
    ("content", "about"),
    [
        (b"", "lists no probe; write one probe id per line"),
        (b'{"sightline_probes": 1}\n', "lists no probe"),
        (b'{"id": 3', "neither an id nor JSON"),
        (b'{"name": "x"}', "has a line without an id"),
        (b"\xff\xfe\xff", "it is not text"),
        (None, "list.txt: No such file"),
    ],
)
def test_a_list_that_is_none_is_one_line(tmp_path: Path, content: bytes | None, about: str, refused: Refused) -> None:
    path = tmp_path / "list.txt"
    if content is not None:
        path.write_bytes(content)
    refused(about, read_probe_list, path)


def test_a_limited_report_says_what_the_limit_changes(here: Path, recorded: Page, tmp_path: Path) -> None:
    probes = load_run(here).probes
    decisions = []
    for image in sorted({str(probe["image_id"]) for probe in probes})[:-2]:
        own = tuple(str(probe["id"]) for probe in probes if probe["image_id"] == image)
        decisions.append(SignedDecision(image, image, own, "valid", True, "agreement"))
    write_decisions(tmp_path / "decisions.jsonl", {"signed_by": "dora"}, decisions)
    page = report_on(tmp_path / "limited", here, only=tmp_path / "decisions.jsonl", cases=0, draws=100)
    table = page.frame("limited")
    assert {"title", "arm", "all", "kept", "change"} <= set(table.columns)
    assert (table["change"] - (table["kept"] - table["all"])).abs().max() < 1e-12
    assert "What the limit changes" in page.text
    assert not recorded.has("limited")
