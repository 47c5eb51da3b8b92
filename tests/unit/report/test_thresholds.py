"""One threshold for the whole page: every table of a run is what it is of the same run with its margins moved.

Thresholds come from development runs or the run's own images; a report may be limited to a list of probes.
"""

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pandas as pd
import pytest

from sightline.gate.decisions import gate_runs, junit, markdown
from sightline.probes.probe_file import hash_side
from sightline.probes.typed_rows import SignedDecision, write_decisions
from sightline.report.cases import mark_rows
from sightline.report.sections import deletion, validity
from sightline.report.sections.calibration import thresholds_in_force_table, thresholds_table
from sightline.report.sections.interventions import interventions_table
from sightline.report.sections.positions import positions_table
from sightline.report.summary import summarise
from sightline.rows.run import load_run
from sightline.rows.source import read_probe_list, read_source
from sightline.rows.thresholds import on_development_side
from sightline.statistics.thresholds import accuracy_optimal, evaluate, risk_constrained
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.pages import DRAWS, Page, comparison_of, missing, report_on
from tests.runs.yes_no import EDITED, PLAIN, WITHOUT_MARGIN, Edit, changed, make_run

MOVED = 2.0
ARMS = ("full", "target:0.3", "random:0.3")
NOT_OF_ANSWERS = {
    "calibration", "thresholds", "thresholds_in_force", "association", "construct_validity", "drop_strata",
}  # fmt: skip
"""Tables about recorded margins, of which moved ones round differently, or about thresholds themselves."""


def moved(by: float, prefix: str = "", **columns: Any) -> Edit:
    """Every margin moved, and the answer recorded at t = 0 as a run has it; images of other names; other columns."""

    def edit(row: dict[str, Any]) -> None:
        row["margin"] += by
        row["predicted"] = "yes" if row["margin"] >= 0 else "no"
        row["correct"] = row["predicted"] == row["label"]
        row |= {"image_id": prefix + row["image_id"], **columns}

    return edit


def best_of(rows: pd.DataFrame, arm: str = "full") -> float:
    """The most accurate threshold of an arm."""
    own = rows[rows["arm"] == arm]
    return accuracy_optimal(own["label"] == "yes", own["margin"]).threshold


def audits(folder: Path, by: float) -> list[Path]:
    """A run with every intervention, the same arms with detected boxes, and wrong images alone."""
    wrong = dict.fromkeys(("view", "intervention"), "image_mismatch_seed101")
    boxes = {"box_source": "rapidocr", "boxes": {"missing_rate": 0.25}}
    detected = moved(by, box_source="rapidocr")
    return [
        make_run(folder / "plain", images=24, arms=EDITED, edit_row=moved(by)),
        make_run(folder / "boxes", images=24, arms=ARMS, manifest=boxes, edit_row=detected),
        make_run(folder / "wrong", images=24, arms=("full",), probe_digest="w", edit_row=moved(by - 0.5, **wrong)),
    ]


class Runs(NamedTuple):
    low: list[Path]
    high: list[Path]
    """The same of a model that says yes to nearly everything."""
    there: Path
    """A development run of that model over other images."""
    here: Path


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("thresholds")
    there = make_run(folder / "there", images=30, arms=PLAIN, seed=8, edit_row=moved(MOVED, "dev-"))
    here = make_run(folder / "here", images=12, arms=ARMS, edit_row=moved(MOVED))
    return Runs(audits(folder / "low", 0.0), audits(folder / "high", MOVED), there, here)


class Pages(NamedTuple):
    recorded: Page
    named: Page
    unnamed: Page
    """Those of high margins read at t = 0, as they were recorded."""


@pytest.fixture(scope="module")
def pages(runs: Runs, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder = tmp_path_factory.mktemp("pages")
    return Pages(
        report_on(folder / "recorded", *runs.low, cases=4),
        report_on(folder / "named", *runs.high, threshold=MOVED, cases=4),
        report_on(folder / "unnamed", *runs.high, cases=4),
    )


def test_every_table_is_at_the_threshold_and_says_which_it_is_and_where_it_comes_from(pages: Pages) -> None:
    recorded, named, _ = pages
    expected, found, at_zero = (page.frames() for page in pages)
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
    assert "plain: The threshold is the one that was given, t = 2." in named.notes
    said = ("Answers at t = 2 compared with Full", "the image changes; all at t = 2")
    assert missing(named.text, *said, "With the same mask, at t = 2, the position policy") == []
    assert re.search(r"(yes|no) \((right|wrong), margin [+−][\d.]+ at t = 2\)", named.text), "beneath the first picture"
    for name in ("main", "paired_differences", "correct_positive_provenance", "deletion", "box_sources"):
        assert "Answers are at t = 2." in named.file(f"{name}.md").read_text(), name
        assert "Answers are" not in recorded.file(f"{name}.md").read_text(), name
    assert "Answers at t = 0 compared with Full" in recorded.text
    plain, calibration = at_zero["calibration"], found["calibration"]
    likelihoods = [name + end for name in ("ece", "brier", "nll") for end in ("", "_low", "_high")]
    pd.testing.assert_frame_equal(plain[likelihoods], calibration[likelihoods])
    assert (calibration["yes_rate"] < plain["yes_rate"]).all(), "answers are not recorded but read"


def test_differences_of_margins_do_not_move_with_thresholds_of_their_own(runs: Runs) -> None:
    """Arms are cut at different places here: shifting their margins would change what is compared across arms."""
    plain = read_source(runs.high[:1])
    moved_apart = read_source(runs.high[:1], developments=[runs.there], threshold="own-dev")
    in_force = thresholds_in_force_table(moved_apart)
    assert in_force is not None
    assert in_force.frame["threshold"].nunique() > 1
    of_validity = (validity.association_table, validity.construct_table, validity.drop_strata_table)
    for make in (*of_validity, deletion.logit_drop_table, deletion.occlusion_table):
        before, after = make(plain, 60), make(moved_apart, 60)
        of_answers = before.name in ("logit_drop", "occlusion")
        own = [column for column in before.frame if not of_answers or "support" in str(column)]
        assert own
        pd.testing.assert_frame_equal(before.frame[own], after.frame[own], obj=before.name)
    margins = [interventions_table(source, 60, 0) for source in (plain, moved_apart)]
    first, second = (table.frame["margin_yes"].tolist() for table in margins if table is not None)
    assert first == second
    auroc = [summarise(source, 20).arms["auroc"].tolist() for source in (plain, moved_apart)]
    assert auroc[0] == auroc[1]


def test_a_rule_chosen_on_the_split_leaves_the_held_out_images_in_every_table(runs: Runs) -> None:
    source = read_source(runs.high, threshold="own-dev")
    rows = load_run(runs.high[0]).frame()
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


def test_wrong_images_have_the_thresholds_of_the_run_that_they_are_paired_with(runs: Runs) -> None:
    joined = read_source(runs.high, threshold="full-dev")
    (control,) = joined.controls
    assert joined.runs[0].thresholds is not None
    assert set(control.rows["threshold"]) == set(joined.runs[0].thresholds["threshold"])


def test_position_policies_at_a_rule_are_judged_on_the_images_of_the_usual_split(runs: Runs) -> None:
    split = positions_table(read_source(runs.high[:1]))
    apart = positions_table(read_source(runs.high[:1], threshold="own-dev"))
    by_split, by_rule = (table.frame.set_index("comparison").to_dict("index") for table in (split, apart))
    assert by_rule["own"]["n"] == by_split["own"]["n"] < by_split["0"]["n"]
    for column in ("threshold_compact", "threshold_preserve", "accuracy_compact", "accuracy_preserve", "flips"):
        assert by_rule["own"][column] == by_split["own"][column]
    first = apart.frame.iloc[0]
    assert first["threshold_compact"] == first["threshold_preserve"] != 0


def test_a_run_without_full_borrows_it_from_a_run_like_it(tmp_path: Path, refused: Refused) -> None:
    with_full = make_run(tmp_path / "a", images=24, arms=ARMS, edit_row=moved(MOVED))
    without = make_run(tmp_path / "b", images=24, arms=("target:0.3", "grid:0.3"), edit_row=moved(MOVED))
    thresholds = [one.thresholds for one in read_source([with_full, without], threshold="full-dev").runs]
    assert all(table is not None for table in thresholds)
    assert len({value for table in thresholds if table is not None for value in table["threshold"]}) == 1
    refused("3': no development row of a full arm", read_source, [without], threshold="full-dev")
    shared = [read_source(both, threshold="shared").runs[-1].thresholds for both in ([without], [with_full, without])]
    alone, beside = (None if table is None else table["threshold"].tolist() for table in shared)
    assert alone is not None
    assert alone == beside, "a rule that does not need Full is chosen on the run's own rows"


def test_a_split_that_leaves_no_image_to_be_judged_is_refused(tmp_path: Path, refused: Refused) -> None:
    dev = next(name for name in map(str, range(100)) if hash_side(name) == "dev")
    run = make_run(tmp_path / "run", images=2, arms=ARMS, edit_row=changed(image_id=dev))
    refused("none is left to be judged; add images", read_source, [run], threshold="own-dev")


def test_a_rule_is_chosen_on_the_development_run_and_applied_to_all_images(runs: Runs) -> None:
    source = read_source([runs.here], developments=[runs.there], threshold="hfpr<=0.1")
    rows, chosen_on = (load_run(run).frame() for run in (runs.here, runs.there))
    found = summarise(source, draws=20).arms.set_index("arm")
    for arm in ARMS:
        dev, test = (frame[frame["arm"] == arm] for frame in (chosen_on, rows))
        threshold = risk_constrained(dev["label"] == "yes", dev["margin"], 0.1).threshold
        point = evaluate(test["label"] == "yes", test["margin"], threshold)
        assert (found.loc[arm, "accuracy"], found.loc[arm, "hfpr"]) == (point.accuracy, point.hfpr)
        assert found.loc[arm, "n_probes"] == 24
    assert "chosen on 30 images, all of the development run there, and judged on all images here" in source.notes[0]
    assert "t with hFPR ≤ 0.1" in set(thresholds_table(source).frame["rule"])
    in_force = thresholds_in_force_table(source)
    assert in_force is not None
    assert in_force.frame["dev_probes"].tolist() == [60, 60, 60]
    assert (in_force.frame["dev_hfpr"] <= 0.1).all()


def test_operating_points_are_chosen_on_the_development_run_or_else_on_a_split(runs: Runs, tmp_path: Path) -> None:
    fewer = make_run(tmp_path / "fewer", images=30, arms=ARMS[:2], seed=8, edit_row=moved(1.5, "dev-"))
    table = thresholds_table(read_source([runs.here], developments=[fewer]))
    frame = table.frame.set_index(["arm", "rule"])
    rows, chosen_on = (load_run(run).frame() for run in (runs.here, fewer))
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
    plain = read_source([runs.here])
    split = thresholds_table(plain)
    assert (split.frame["dev"] + split.frame["test"] == 24).all()
    assert not split.frame["rule"].str.contains("hFPR").any()
    assert (split.frame["rule"] == "t = 0").sum() == len(ARMS)
    risk = "No threshold within a risk: how much risk is yours to say, for example --threshold 'hfpr<=0.05'"
    assert missing(split.caption, "SHA-1", risk) == []
    assert thresholds_in_force_table(plain) is None


def test_development_runs_have_other_images_and_the_same_weights(runs: Runs, tmp_path: Path, refused: Refused) -> None:
    here, there = runs.here, runs.there
    refused("chosen on other images than they are judged on", read_source, [here], developments=[here])
    elsewhere = moved(0.0, "dev-")
    other = make_run(tmp_path / "other", images=4, arms=ARMS, manifest={"weight_digest": "00"}, edit_row=elsewhere)
    refused("has other weights than every run that is reported", read_source, [here], developments=[there, other])
    refused(
        "has other weights than every run that is gated", gate_runs, [here], ["auroc(full) > 0"], developments=[other]
    )
    half = make_run(tmp_path / "half", images=6, arms=ARMS, manifest={"dtype": "bfloat16"}, seed=8, edit_row=elsewhere)
    notes = read_source([here], developments=[half]).notes
    assert any("half, which has the same weights but other settings" in note for note in notes)

    def part(prefix: str, seed: int) -> Path:
        def edit(row: dict[str, Any]) -> None:
            moved(MOVED, prefix)(row)
            row["probe_id"] = prefix + row["probe_id"]

        return make_run(tmp_path / prefix, images=15, arms=ARMS, seed=seed, edit_row=edit)

    parts = [part("first", 8), part("second", 9)]
    both = pd.concat([load_run(part).frame() for part in parts])
    (found,) = read_source([here], developments=[*parts, parts[0]], threshold="full-dev").runs
    assert set(found.frame["threshold"]) == {best_of(both)}
    assert "chosen on 30 images, all of the development run first, second, and judged" in found.notes[0]


def test_pictures_and_comparisons_are_at_the_threshold_on_the_same_held_out_images(runs: Runs, tmp_path: Path) -> None:
    before = mark_rows(read_source(runs.low).runs[0])
    after = mark_rows(read_source(runs.high, threshold=MOVED).runs[0])
    for column in ("flip", "unsupported", "rank", "predicted"):
        assert before[column].tolist() == after[column].tolist(), column
    assert after["strength"].to_numpy() == pytest.approx(before["strength"].to_numpy())

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


def test_the_gate_decides_at_the_threshold_on_the_probes_held_out(runs: Runs) -> None:
    rules = ["accuracy(full) >= 0.6", "hfpr(target:0.3) <= 0.4", "accuracy(target:0.3) - accuracy(full) >= -0.5"]
    (before,) = gate_runs(runs.low[:1], rules, least_n=5, draws=DRAWS)
    (after,) = gate_runs(runs.high[:1], rules, threshold=MOVED, least_n=5, draws=DRAWS)
    (at_zero,) = gate_runs(runs.high[:1], rules, least_n=5, draws=DRAWS)
    values = [[(found.value, found.verdict, found.n) for found in run.outcomes] for run in (before, after, at_zero)]
    assert values[0] == values[1] != values[2]
    sentence = "The threshold is the one that was given, t = 2."
    assert sentence in markdown([after])
    noted = ElementTree.fromstring(junit([after])).findall("testsuite/properties/property")
    assert sentence in [note.get("value") for note in noted]
    rows = load_run(runs.high[0]).frame()
    held_out = int((~on_development_side(rows[rows["arm"] == "full"])).sum())
    for least_n, refuses in ((5, False), (held_out + 1, True)):
        (run,) = gate_runs(runs.high[:1], ["accuracy(full) >= 0.1"], threshold="shared", least_n=least_n, draws=DRAWS)
        assert run.outcomes[0].n == held_out
        assert (run.outcomes[0].verdict == "refused") is refuses


def test_each_model_has_its_rule_and_its_development_run(tmp_path: Path) -> None:
    manifest = {"model": "other", "weight_digest": "77" * 32}
    other: dict[str, Any] = {"arms": ARMS, "manifest": manifest}
    one = make_run(tmp_path / "one", images=8, arms=ARMS, edit_row=moved(MOVED))
    two = make_run(tmp_path / "two", images=8, edit_row=moved(-1.0, model="other"), **other)
    there = make_run(tmp_path / "dev", images=20, seed=8, edit_row=moved(-1.0, "dev-", model="other"), **other)
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


def test_commands_take_thresholds_and_refuse_bad_ones(runs: Runs, run: Path, tmp_path: Path, refused: Refused) -> None:
    options = ["--threshold", "reader-mini=full-dev", "--development", str(runs.there), "--draws", "100"]
    bad = (
        ("reader-mimi=2", "'reader-mimi', which no run has; did you mean 'reader-mini'?"),
        ("reader-mini=own", "'own' is not a threshold; did you mean 'own-dev'?"),
    )
    page = ["--out", tmp_path / "out", "--cases", "2"]
    gate = ["--rule", "accuracy(full) >= 0.01", "--least-n", "5"]
    commands = (("report", 1, page), ("compare", 2, page), ("gate", 1, gate))
    for command, count, rest in commands:
        for threshold, about in bad:
            refused(about, sightline, command, *[run] * count, *rest, "--threshold", threshold)
    assert not (tmp_path / "out").exists()
    for command, count, rest in commands:
        result = sightline(command, *[runs.here] * count, *rest, *options)
    assert "The threshold is Full's most accurate one, for all arms" in result.stderr
    assert "all of the development run there" in Page(tmp_path / "out/report.html").notes
    bare = make_run(tmp_path / "bare", images=4, arms=ARMS, edit_row=WITHOUT_MARGIN)
    refused(" there is no threshold to set", read_source, [bare], threshold="full-dev")
    refused("bare: the rows have no margin", read_source, [run, bare], threshold="2.0")


# A report over a list of probes.


def test_a_report_over_a_list_of_probes_and_lists_that_are_none(runs: Runs, tmp_path: Path, refused: Refused) -> None:
    wanted = sorted(load_run(runs.here).frame()["probe_id"].unique())[:5]
    listed = tmp_path / "valid.txt"
    listed.write_text("\n".join([*wanted, "", "somebody else's"]))
    (run,) = read_source([runs.here], only=read_probe_list(listed)).runs
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
    refused("here; its ids look like", read_source, [runs.here], only=read_probe_list(listed))
    refused("list.txt: No such file", read_probe_list, tmp_path / "list.txt")
    for content, about in (
        (b"", "lists no probe; write one probe id per line"),
        (b'{"sightline_probes": 1}\n', "lists no probe"),
        (b'{"id": 3', "neither an id nor JSON"),
        (b'{"name": "x"}', "has a line without an id"),
        (b"\xff\xfe\xff", "it is not text"),
    ):
        (tmp_path / "list.txt").write_bytes(content)
        refused(about, read_probe_list, tmp_path / "list.txt")


def test_a_limited_report_says_what_the_limit_changes(runs: Runs, pages: Pages, tmp_path: Path) -> None:
    probes = load_run(runs.here).probes
    decisions = []
    for image in sorted({str(probe["image_id"]) for probe in probes})[:-2]:
        own = tuple(str(probe["id"]) for probe in probes if probe["image_id"] == image)
        decisions.append(SignedDecision(image, image, own, "valid", True, "agreement"))
    write_decisions(tmp_path / "decisions.jsonl", {"signed_by": "dora"}, decisions)
    page = report_on(tmp_path / "limited", runs.here, only=tmp_path / "decisions.jsonl", cases=0, draws=100)
    table = page.frame("limited")
    assert {"title", "arm", "all", "kept", "change"} <= set(table.columns)
    assert (table["change"] - (table["kept"] - table["all"])).abs().max() < 1e-12
    assert "What the limit changes" in page.text
    assert not pages.recorded.has("limited")
