"""Aims are judged on the measured table, curves are drawn from the log."""

import json
import re

import pandas as pd
import pytest
import torch
from transformers import AutoModelForImageTextToText

from lab.reader.card_aims import aims
from lab.reader.curves import curves_svg, smooth
from lab.reader.forms import FORMS
from lab.reader.model_card import ARMS, CARD, CURVES, judge, write_card
from lab.reader.open_card import OPEN_ARMS, WRONG_ROW, judge_open, open_figures
from lab.reader.processor import save_processor
from lab.reader.training_record import TRAINING, continued
from sightline import AuditConfig, audit, read_probes
from sightline.checks.demo import asset
from sightline.controls.image_free import mismatched_probes
from sightline.probes import write_probes


def table(**changes):
    lines = {arm: {"accuracy": 0.5, "positive_accuracy": 0.4, "hfpr": 0.05, "pos_ecr": 0.3} for arm in ARMS}
    lines["full"] |= {"accuracy": 0.96, "positive_accuracy": 0.95}
    lines["target:0.3"] |= {"accuracy": 0.93, "pos_ecr": 0.9}
    lines["random:0.3"] |= {"accuracy": 0.75}
    for arm, values in changes.items():
        lines[arm] |= values
    return lines


def open_table(**changes):
    lines = dict.fromkeys(OPEN_ARMS, 0.5) | {WRONG_ROW: 0.01, "full": 0.93, "anti_evidence:0.3": 0.1, "full+blank": 0.0}
    return {arm: {"exact": exact} for arm, exact in (lines | changes).items()}


def missed(targets):
    return [target.aim for target in targets if not target.met]


MISSED = [
    ("full", {"accuracy": 0.94}, "Full accuracy"),
    ("full", {"hfpr": 0.07}, "hFPR"),
    ("grid:0.3", {"pos_ecr": 0.6}, "PosECR"),
    ("target:0.3", {"accuracy": 0.9}, "within 0.05"),
    ("random:0.3", {"accuracy": 0.9}, "Random"),
    ("full+remove_evidence", {"positive_accuracy": 0.8}, "evidence cells alone removed"),
    ("full+blank", {"accuracy": 0.54}, "blank image"),
]
OPEN_MISSED = [
    ("full", 0.91, "at least 0.92"),
    ("random:0.3", 0.64, "at least 0.30 below"),
    ("anti_evidence:0.3", 0.16, "no evidence cell"),
    ("full+blank", 0.06, "blank image"),
    (WRONG_ROW, 0.06, "wrong image"),
]


def test_a_missed_aim_is_named_and_printed():
    wrong, more_wrong = ({"image_mismatch_seed101": share} for share in (0.5, 0.56))
    assert missed(judge(table(), wrong)) == missed(judge_open(open_table())) == []
    for arm, values, words in MISSED:
        (found,) = missed(judge(table(**{arm: values}), wrong))
        assert words in found
    for arm, exact, words in OPEN_MISSED:
        (found,) = missed(judge_open(open_table(**{arm: exact})))
        assert words in found
    assert missed(judge(table(), more_wrong)) == ["wrong image (draw 101): accuracy 0.50 +- 0.03"]
    text = aims(judge(table(), more_wrong))
    assert text.count("**missed**") == 1
    assert "9 of 10 are met" in text


def test_curves_show_all_shares():
    assert smooth([0.0, 3.0, 6.0], 3) == [1.5, 3.0, 4.5]
    drawn = curves_svg([{"step": step, "slots": 1.0 / step, "accuracy": 0.5} for step in range(1, 30)])
    assert drawn.count("<polyline") == 2
    assert "step (of 29)" in drawn
    few, fewer = (curves_svg([{"step": step, "exact": share} for step in (1, 2)]) for share in (0.3, 0.1))
    assert few != fewer


def open_rows(box_source="gt"):
    rows = [
        {"arm": arm, "kind": kind, "image_id": str(number), "exact": number > 0, "label": "open"}
        for arm in OPEN_ARMS
        for number in range(2)
        for kind in ("below", "total")
    ]
    return pd.DataFrame(rows).assign(box_source=box_source)


def test_rows_that_make_no_card_are_refused(refused, tmp_path):
    refused("training.json", write_card, tmp_path, tmp_path, tmp_path)
    refused("--box-source gt", open_figures, open_rows("annotation"), open_rows())
    refused("has no arm full+blank", open_figures, open_rows().query("arm != 'full+blank'"), open_rows())
    refused("wrong images", open_figures, open_rows(), open_rows().head(0))


def test_the_record_of_a_reader_trained_on_counts_on_from_the_one_before():
    history = {"steps": 100, "legs": [{"minutes": 9}]}
    before = {"history": history, "curves": [{"step": 100, "answer": 1.0}], "torch": "1"}
    after = {"history": {"steps": 7, "legs": [{"open": True}]}, "curves": [{"step": 5}], "checks": [{"step": 7}]}
    both = continued(before, after | {"parameters": 3})
    assert both["history"] == {"steps": 107, "legs": [{"minutes": 9}, {"open": True}]}
    assert [entry["step"] for entry in both["curves"]] == [100, 105]
    assert both["checks"] == [{"step": 107}]
    assert both["parameters"] == 3


@pytest.fixture(scope="module", params=[("qwen3_vl", "open"), ("llava", "both")], ids=["qwen3_vl", "llava"])
def toy_reader(request, tmp_path_factory):
    """A checkpoint that knows nothing, with a record that says it was trained on open questions."""
    form, kind = request.param
    folder = tmp_path_factory.mktemp("card") / form
    FORMS[form].model("toy").save_pretrained(folder)
    save_processor(folder, FORMS[form])
    leg = {"progress": "0:1", "minutes": 1, "batch": 2, "lr": 1e-3, kind: True, "silence": True}
    curves = [{"step": 1, "answer": 0.7, "letters": 1.5, "exact": 0.25, "accuracy": 0.5}]
    record = {"form": form, "parameters": 1000, "history": {"steps": 1, "legs": [leg]}, "curves": curves}
    (folder / "training.json").write_text(json.dumps(record))
    return folder


def scenes_audit(model, out, probes, images, arms, limit=3, **more):
    """Of the first development scenes, with positions as both readers were trained."""
    scenes = asset("scenes", "development")
    files = {"model": str(model), "probes": scenes / probes, "images": scenes / images, "out": out}
    plain = {"matched_controls": False, "dtype": "float32", "device": "cpu", "limit": limit, "positions": "preserve"}
    return audit(AuditConfig(arms=list(arms), **{**files, **plain, **more}))


def test_card_of_a_reader_that_answers_open_questions(refused, toy_reader, tmp_path):
    control = tmp_path / "wrong.jsonl"
    found = read_probes(asset("scenes", "development") / "probes.jsonl").probes[:6]
    write_probes(control, mismatched_probes(found, {p.image_id: found[-1].image_id for p in found}, 101))
    runs = [
        scenes_audit(toy_reader, tmp_path / name, probes, images, arms, **more).path
        for name, probes, images, arms, more in (
            ("yes-no", "probes.jsonl", "images", ARMS, {}),
            ("controls", control, "images", ["full"], {}),
            ("open", "open_probes.jsonl", "open_images", OPEN_ARMS, {"box_source": "gt"}),
            ("wrong", "open_wrong_images.jsonl", "open_images", ["full"], {}),
        )
    ]
    refused(f"{toy_reader.name} was trained on open questions", write_card, toy_reader, runs[0], runs[1])
    compact = scenes_audit(toy_reader, tmp_path / "compact", control, "images", ["full"], positions="compact").path
    refused("differ in --positions (compact, preserve)", write_card, toy_reader, runs[0], compact, *runs[2:])
    card, curves = (path.read_text(encoding="utf-8") for path in write_card(toy_reader, *runs))
    form = FORMS[toy_reader.name]
    for words in (
        "| open answers, Full: exact match at least 0.92 | 0.000 | **missed** |",
        "| open answers, wrong image: exact match at most 0.05 | 0.000 | met |",
        "First images of the confirmation set: 6 probes on 3 images",
        "with `--positions preserve`",
        "6 on 3 images",
        '- `What is the text right of "X"?`',
        "all, open questions too, silence",
        form.words,
        form.story,
        form.limits,
        f"assets/{form.folder}",
        f"({form.side} x {form.side} visual tokens)",
        "\n| `anti_evidence:0.3` | 0.000 (0.000, ",
    ):
        assert words in card
    assert ("from the first step on" in card) == (form.name == "llava")
    assert ">letters</text>" in curves


IMAGES, OPEN_IMAGES = 6, 5
OPEN_FLOOR = {"reader": 0.8, "reader-llava": 0.4}
"""Share of right open answers, well below what the cards say of many more questions (0.97 and 0.65)."""


@pytest.fixture(scope="module", params=FORMS)
def folder(request):
    return asset(FORMS[request.param].folder)


def test_shipped_readers_answer_most_probes_and_keep_the_evidence(folder, tmp_path):
    arms = ["full", "target:0.3", "anti_evidence:0.3"]
    rows = scenes_audit(folder, tmp_path / "run", "probes.jsonl", "images", arms, IMAGES).frame()
    correct = rows.groupby("arm")["correct"].mean()
    assert len(rows) == 3 * 2 * IMAGES
    assert correct["full"] >= 0.8
    assert correct["target:0.3"] >= 0.8
    coverage = rows[rows["label"] == "yes"].groupby("arm")["ecr"].mean()
    assert coverage["target:0.3"] > 0.9
    assert coverage["anti_evidence:0.3"] == 0.0


def test_shipped_readers_answer_most_open_questions_and_none_without_their_evidence(folder, tmp_path):
    asked = ("open_probes.jsonl", "open_images", ["full", "anti_evidence:0.3"])
    sizes = {"limit": OPEN_IMAGES, "box_source": "gt"}
    rows = scenes_audit(folder, tmp_path / "open", *asked, **sizes).frame()
    exact = rows.groupby("arm")["exact"].mean()
    assert len(rows) == 2 * 2 * OPEN_IMAGES
    assert exact["full"] >= OPEN_FLOOR[folder.name]
    assert exact["anti_evidence:0.3"] <= 0.1
    assert (rows.loc[rows["arm"] == "anti_evidence:0.3", "ecr"] == 0.0).all()
    right = rows[rows["exact"]]
    assert (right["answer"].str.casefold() == right["accepted"].str.casefold()).all()


def test_a_shipped_checkpoint_is_small_and_stock_and_comes_with_its_sources(folder):
    model = AutoModelForImageTextToText.from_pretrained(folder)
    form = FORMS[model.config.model_type]
    assert form.folder == folder.name
    assert type(model).__module__.startswith(f"transformers.models.{form.name}")
    assert model.dtype == torch.bfloat16
    assert sum(file.stat().st_size for file in folder.iterdir()) < 25e6

    card = (folder / CARD).read_text(encoding="utf-8")
    headings = ("Held-out figures", "Held-out figures: open questions", "What it was trained to be", "Data", "Training")
    for heading in (*headings, "Limits"):
        assert f"\n## {heading}\n" in card
    assert "<polyline" in (folder / CURVES).read_text(encoding="utf-8")
    legs = json.loads((folder / TRAINING).read_text(encoding="utf-8"))["history"]["legs"]
    assert len(legs) >= 2
    for number, leg in enumerate(legs, start=1):
        assert f"\n| {number} | {leg['progress']} |" in card


def test_figures_told_beside_the_tables_are_those_of_the_tables():
    """The story of the second form sets its own table of positions beside figures that the card takes from rows."""
    measured, told = (asset("reader-llava") / CARD).read_text(encoding="utf-8").split("**Positions.**")
    arms = re.findall(r"^\| `(\w+:0\.3)` \| (0\.\d{3}) \|", told, re.MULTILINE)
    assert len(arms) == 7
    for arm, accuracy in arms:
        assert f"\n| `{arm}` | {accuracy} (" in measured
