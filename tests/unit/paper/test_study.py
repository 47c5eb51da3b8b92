"""A study's folder: what is asked for twice is computed once, and what does not belong together is refused."""

import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from sightline.probes.typed_rows import SignedDecision, write_decisions
from sightline.rows.run import load_run
from sightline_paper import PAPER_TABLES, Need, Study, StudyOptions
from sightline_paper.measures import valid_images
from sightline_paper.models import named_models
from sightline_paper.needs import merged
from sightline_paper.printed import measured, run_table, with_earlier
from sightline_paper.study import built_set, of_visible_evidence
from tests.command_line import sightline
from tests.refusals import Refused
from tests.unit.paper.conftest import Pilot


def test_needs_of_several_tables_become_one_run_with_all_arms() -> None:
    first = Need("qwen", "confirmation", ("full", "target:0.3"))
    second = Need("qwen", "confirmation", ("target:0.3", "grid:0.3"))
    other = Need("qwen", "confirmation", ("full",), "missing")
    assert merged([first, second, other]) == [Need("qwen", "confirmation", ("full", "target:0.3", "grid:0.3")), other]


def test_a_second_table_amends_the_run_of_the_first_and_what_people_said_is_remembered(
    pilot: Pilot, data: Path, tmp_path: Path
) -> None:
    study = pilot()
    study.models.pop("llava")
    run_table(study, PAPER_TABLES.get("S5"))
    folder = tmp_path / "study/runs/qwen-confirmation"
    before = {file: file.stat().st_mtime_ns for file in folder.rglob("*.parquet")}
    assert load_run(folder).arms == ["target:0.3", "random:0.3", "grid:0.3"]
    printed = run_table(study, PAPER_TABLES.get("1"))
    assert set(load_run(folder).arms) == {"target:0.3", "random:0.3", "grid:0.3", "full", "visionzip_qwen:0.3"}
    assert {file: file.stat().st_mtime_ns for file in before} == before, "a finished shard was computed again"
    assert printed.state == "5 of 16 lines measured"
    assert any("no checkpoint of LLaVA" in line for line in printed.missing)
    valid = tmp_path / "valid.txt"
    valid.write_text("".join(f"{image}\n" for image in study.rows("qwen", "confirmation")["image_id"].unique()))
    run_table(pilot(valid=valid), PAPER_TABLES.get("S7"))
    later = Study(tmp_path / "study", {}, options=StudyOptions(limit=4, draws=200))
    assert (later.options.valid, later.options.clip) == (valid, str(data / "tiny/clip"))
    (again,) = (printed for printed in with_earlier(later, []) if printed.table.number == "S7")
    assert all(block.measured_lines for block in again.blocks[:2]), again.missing


def test_sets_share_no_image_and_may_not_change(pilot: Pilot, refused: Refused) -> None:
    study = pilot()
    (file, development, _), (_, confirmation, _) = (built_set(study, name) for name in ("development", "confirmation"))
    assert not set(development.image_ids) & set(confirmation.image_ids)
    assert development.construction["version"] == "development-v1"
    assert (confirmation.construction["version"], confirmation.construction["seed"]) == ("confirmation-v2", 20260720)
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"label": "yes"', '"label": "no"', 1), encoding="utf-8")
    refused("development", built_set, study, "development")


def test_the_options_that_a_folder_was_begun_with_may_not_change(
    pilot: Pilot, tmp_path: Path, refused: Refused
) -> None:
    pilot().record()
    refused("was begun with demo=False", Study, tmp_path / "study", {}, options=StudyOptions(demo=True, limit=4))
    refused("was begun with limit=4", pilot, limit=5)


def test_checkpoints_are_known_by_their_form_and_each_is_named_once(data: Path, refused: Refused) -> None:
    assert named_models([str(data / "tiny/llava"), f"qwen={data / 'tiny/qwen3vl'}"]) == {
        "llava": str(data / "tiny/llava"),
        "qwen": str(data / "tiny/qwen3vl"),
    }
    refused("both", named_models, [str(data / "tiny/llava"), f"llava={data / 'tiny/llava'}"])
    refused("is a 'clip' model", named_models, [str(data / "tiny/clip")])


def test_textocr_that_was_not_given_or_is_not_whole_is_refused_in_words(tmp_path: Path, refused: Refused) -> None:
    study = Study(tmp_path / "study", {}, tmp_path, StudyOptions(limit=4))
    refused("TextOCR_0.1_val.json", lambda: study.source)
    refused("--textocr", lambda: Study(tmp_path / "other", {}).source)


def test_a_clip_that_cannot_serve_leaves_out_the_arms_that_need_it(pilot: Pilot, data: Path, tmp_path: Path) -> None:
    """Its weights are pickled alone, as the hub has the paper's; or it is of another width than LLaVA's tower."""
    pickled, narrow = (Path(shutil.copytree(data / "tiny/clip", tmp_path / name)) for name in ("pickled", "narrow"))
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    config = json.loads((narrow / "config.json").read_text())
    config["vision_config"]["hidden_size"] = 48
    (narrow / "config.json").write_text(json.dumps(config))
    needs = [Need("qwen", "confirmation", ("full",)), Need("llava", "confirmation", ("full", "anchorprune:0.4"))]
    for clip, reason in ((pickled, "sightline convert"), (narrow, "48-wide")):
        study = pilot(clip=str(clip))
        left = [(need.model, need.arms) for need in study.servable(needs)]
        assert left == [("qwen", ("full",)), ("llava", ("full",))]
        (note,) = study.notes
        assert "anchorprune:0.4 on LLaVA-1.5-7B is left out" in note
        assert reason in note
        shutil.rmtree(tmp_path / "study", ignore_errors=True)


def test_what_is_left_out_for_want_of_clip_is_noted_under_its_table_alone(pilot: Pilot) -> None:
    study = pilot(clip=None)
    study.models.pop("qwen")
    with_clip, without = (run_table(study, PAPER_TABLES.get(number)) for number in ("S7", "S6"))
    (note,) = (note for note in with_clip.notes if "anchorprune" in note)
    assert "give --clip" in note
    assert without.notes == ()
    earlier = {printed.table.number: printed.notes for printed in with_earlier(study, [without])}
    assert earlier == {"S6": (), "S7": with_clip.notes}


def test_files_and_folders_that_are_not_there_are_refused_at_once(
    pilot: Pilot, tmp_path: Path, refused: Refused
) -> None:
    asked = ["paper", "run", "S6", "--out", tmp_path / "study", "--textocr", "nowhere"]
    refused("--textocr: there is no folder nowhere", sightline, *asked)
    for name in ("valid", "decisions", "annotations", "second_annotations"):
        refused(f"--{name.replace('_', '-')}: there is no file", pilot, **{name: tmp_path / "people.txt"})
    assert not (tmp_path / "study").exists()


def test_a_run_that_measured_nothing_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    asked = ["paper", "run", "S6", "--out", tmp_path / "study", "--textocr", tmp_path / "empty"]
    assert "nothing was measured" in sightline(*asked, code=1).output


def test_a_row_names_the_detector_that_measured_it(pilot: Pilot, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Study, "detector", "rapidocr")
    printed = measured(pilot(), PAPER_TABLES.get("S18"))
    names = [" · ".join(line.words) for line in printed.blocks[0].lines if line.line.box_source == "easyocr"]
    assert len(names) == 2
    assert all("rapidocr for EasyOCR" in text for text in (*names, printed.csv(), printed.latex()))


def test_coverage_counts_what_the_tower_sees() -> None:
    columns = {"ecr": [0.4, 0.25], "anchor_ecr": [0.4, 0.5], "lpp": [0.5, 0.5], "geo_f1": [0.1, 0.1]}
    columns |= {"anchor_lpp": [0.5, 0.5], "anchor_geo_f1": [0.1, 0.1]}
    seen = {name: [*values, 0.0] for name, values in columns.items()}
    found = of_visible_evidence(pd.DataFrame({"visible": [1.0, 0.5, 0.0], **seen}))
    assert found["ecr"].tolist()[:2] == [0.4, 0.5]
    assert found["anchor_ecr"].tolist()[:2] == [0.4, 1.0]
    assert found["geo_f1"].tolist()[1] == pytest.approx(0.5)
    assert found.loc[2, ["ecr", "anchor_ecr", "geo_f1"]].isna().all()


def test_signed_decisions_stand_for_a_list_of_valid_images(pilot: Pilot, tmp_path: Path) -> None:
    signed = tmp_path / "decisions.jsonl"
    decisions = [SignedDecision(name, name, (name,), "", name == "a", "agreement") for name in ("a", "b")]
    write_decisions(signed, {"signed_by": "dora"}, decisions)
    assert valid_images(pilot(valid=signed)) == {"a"}


def test_decisions_that_come_after_the_set_was_built_are_refused(tmp_path: Path, refused: Refused) -> None:
    study = Study(tmp_path / "study", {}, options=StudyOptions(demo=True, limit=6))
    study.record()
    _, found, _ = built_set(study, "replacement")
    assert found.construction["reviewed"] is False
    decisions = tmp_path / "screening.csv"
    decisions.write_text(f"image_id,decision\n{found.probes[0].image_id},valid_semantic_edit\n", encoding="utf-8")
    reviewed = Study(tmp_path / "study", {}, options=StudyOptions(demo=True, limit=6, decisions=decisions))
    refused("before people's decisions were given", built_set, reviewed, "replacement")
