"""A run as the pages see it: what the files hold, also while they are being written, and nothing beside them."""

import base64
import io
import json
import re
import shutil
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sightline.answering.scorers.spoken import FIELD_COLUMNS
from sightline.answering.scorers.transcription import Transcription
from sightline.answering.scorers.yes_no import YesNo
from sightline.errors import SightlineError
from sightline.geometry.marks import BLACK, PALE
from sightline.rows.run import load_run
from sightline.store.folder import RunFolder
from sightline.view import runs
from sightline.view.bundle import IMPORT, joined_script, write_bundle
from sightline.view.overview import measured
from sightline.view.runs import viewed_runs
from sightline.view.server import PAGES, PageData
from tests.refusals import Refused
from tests.runs.image_files import SHARP, write_image_files
from tests.runs.pages import Page
from tests.runs.yes_no import make_run


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("viewed") / "other", shift=0.4, manifest={"model": "other"})


@pytest.fixture(scope="module")
def answers(run: Path, other: Path) -> PageData:
    return PageData(viewed_runs([run, other], None))


def test_the_first_numbers_are_the_reports_and_open_the_rows_that_they_count(report: Page, answers: PageData) -> None:
    written = report.file("main.md").read_text().splitlines()
    table = answers.runs[0].numbers()["table"]
    for row in table["panels"][0]["rows"]:
        line = next(line for line in written if line.startswith(f"| {row[0]['text']} |"))
        assert [cell.split(" ")[0] for cell in line.strip("| ").split(" | ")] == [cell["text"] for cell in row]
    rows = answers.runs[0].asked()
    keys = [column["key"] for column in table["columns"]]
    for row in (row for panel in table["panels"] for row in panel["rows"]):
        for cell in row:
            found = rows.ordered(rows.matching(cell["behind"]["query"]), cell["behind"]["sort"], False)
            assert {record["arm"] for record in rows.records(found, ["arm"])} <= {row[0]["text"]}
        own = rows.matching(row[0]["behind"]["query"])
        wrong = rows.matching(row[keys.index("accuracy")]["behind"]["query"])
        assert float(row[keys.index("accuracy")]["text"]) == pytest.approx(1 - len(wrong) / len(own), abs=5e-4)
        alarms = rows.matching(row[keys.index("hfpr")]["behind"]["query"])
        assert float(row[keys.index("hfpr")]["text"]) == pytest.approx(2 * len(alarms) / len(own), abs=5e-4)


def test_a_case_holds_the_stored_bits_and_looking_writes_nothing(run: Path, answers: PageData) -> None:
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    stored = load_run(run)
    case = answers.case({"probe": "img0002:yes", "arms": "target:0.3|visionzip:0.3"})
    assert [panel["arm"] for panel in case["panels"]] == ["target:0.3", "visionzip:0.3"]
    for panel in case["panels"]:
        row = stored.row("img0002:yes", panel["arm"])
        assert base64.b64decode(panel["kept_mask"]) == row["kept_mask"]
        assert (panel["lineage_mask"] is None) == (row["lineage_mask"] is None)
        cells = np.frombuffer(base64.b64decode(case["images"][panel["image_key"]]["cells"]), "<f4").reshape(-1, 4)
        assert np.array_equal(cells, stored.cells(row))
    assert len(case["answers_of_arms"]) == len(stored.arms)
    assert case["regions"][0]["words"] == "region with the evidence"
    found = answers.keepers({"probe": "img0001:no", "key": "img0001.jpg@orig"})["arms"]
    assert [one["arm"] for one in found] == stored.arms
    assert all(base64.b64decode(one["kept_mask"]) == stored.row("img0001:no", one["arm"])["kept_mask"] for one in found)
    for _ in range(2):  # the second time intervals are begun
        assert answers.overview({})["state"] == "computing"
    answers.runs[0].intervals.stop()
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before


def test_a_case_of_damaged_masks_is_refused_by_their_file(small_copy: Path, refused: Refused) -> None:
    file = RunFolder(small_copy).rows_file("full", 0)
    group = pq.read_metadata(file).row_group(0)
    columns = map(group.column, range(group.num_columns))
    (page,) = (column.data_page_offset for column in columns if column.path_in_schema == "kept_mask")
    content = bytearray(file.read_bytes())
    content[page] ^= 1
    file.write_bytes(content)
    answers = PageData(viewed_runs([small_copy], None))
    refused("00000.parquet is damaged", answers.case, {"probe": "img0000:yes", "arms": "full"})


def test_two_runs_are_compared_probe_by_probe(run: Path, other: Path, answers: PageData, refused: Refused) -> None:
    frames = [load_run(folder).frame().query("arm == 'target:0.3'") for folder in (run, other)]
    right = [frame.set_index("probe_id")["correct"] for frame in frames]
    asked = {"first": "0", "second": "1", "arm": "target:0.3", "other": "target:0.3"}
    found = answers.compare({**asked, "outcome": "only_second"})
    counts = found["counts"]
    assert counts["only_second"] == int((~right[0] & right[1]).sum())
    assert counts["both"] == int((right[0] & right[1]).sum())
    assert counts["both"] + counts["neither"] + counts["only_first"] + counts["only_second"] == found["pairs"] == 40
    assert {row["probe_id"] for row in found["rows"]} == set(right[0].index[~right[0] & right[1]])
    refused("no row of arm 'targt'", answers.compare, {**asked, "arm": "targt"})


def test_rows_go_along_as_csv_probe_list_and_tasks(answers: PageData, refused: Refused) -> None:
    asked = {"query": 'arm == "full" and label == "yes"'}
    lines = answers.take({**asked, "format": "csv", "columns": "probe_id,question,margin"}).splitlines()
    assert lines[0] == "probe_id,question,margin"
    assert len(lines) == 21
    assert answers.take({**asked, "format": "probes"}).split() == [f"img{i:04d}:yes" for i in range(20)]
    (task,) = json.loads(answers.take({"probe": "img0000:yes", "format": "label-studio"}))
    value = task["predictions"][0]["result"][0]["value"]
    box = answers.runs[0].reader.probes.record("img0000:yes", "orig")["regions"][0]
    assert [value["x"], value["y"]] == pytest.approx([100 * box[0], 100 * box[1]])
    assert [value["x"] + value["width"], value["y"] + value["height"]] == pytest.approx([100 * box[2], 100 * box[3]])
    refused("no format 'xls'", answers.take, {**asked, "format": "xls"})


def test_a_file_is_shown_where_it_is_the_one_that_was_audited(tmp_path: Path) -> None:
    write_image_files(make_run(tmp_path / "run", images=2), tmp_path / "images")
    answers = PageData(viewed_runs([tmp_path / "run"], tmp_path / "images"))
    case = answers.case({"probe": "img0000:yes", "arms": "full"})
    assert case["images"]["img0000.jpg@orig"] | {"cells": "", "layout": ""} == {
        "image": "img0000.jpg", "width": SHARP[0], "height": SHARP[1], "layout": "", "cells": "", "details": [],
        "source": "file", "veil": BLACK,
    }  # fmt: skip
    content, media = answers.image({"key": "img0000.jpg@orig", "source": "file"})
    assert (content, media) == ((tmp_path / "images" / "img0000.jpg").read_bytes(), "image/jpeg")
    (tmp_path / "images" / "img0000.jpg").write_bytes((tmp_path / "images" / "img0001.jpg").read_bytes())
    case = answers.case({"probe": "img0000:yes", "arms": "full"})
    assert case["images"]["img0000.jpg@orig"]["source"] == "preview"
    (tmp_path / "images" / "img0001.jpg").rename(tmp_path / "elsewhere.jpg")
    (tmp_path / "images" / "img0001.jpg").symlink_to(tmp_path / "elsewhere.jpg")
    content, _ = answers.image({"key": "img0001.jpg@orig", "source": "file"})
    assert content != (tmp_path / "elsewhere.jpg").read_bytes(), "a link out of the folder is never followed"


def test_a_growing_run_is_read_as_far_as_written(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "LOOK_EVERY_S", -1.0)
    part = shutil.copytree(run, tmp_path / "part")
    later = sorted((part / "rows").iterdir())[-3:]
    for folder in later:
        folder.rename(tmp_path / folder.name)
    (growing,) = viewed_runs([part], None)
    assert (growing.facts()["missing"], growing.facts()["rows"]) == (3, 200)
    before = growing.numbers()
    for folder in later:
        (tmp_path / folder.name).rename(folder)
    facts = growing.facts()
    assert (facts["missing"], facts["rows"], facts["version"]) == (0, 320, 2)
    (whole,) = viewed_runs([run], None)
    assert growing.numbers() == whole.numbers() != before
    assert growing.asked().rows.table.to_pylist() == whole.asked().rows.table.to_pylist()


def test_a_run_that_an_earlier_release_wrote_is_viewed(data: Path) -> None:
    (run,) = viewed_runs([data / "recorded_run"], None)
    stored = load_run(data / "recorded_run")
    assert run.facts()["rows"] == stored.rows.num_rows
    probe = stored.rows.column("probe_id")[0].as_py()
    case = PageData([run]).case({"probe": probe, "arms": stored.arms[0]})
    assert case["panels"][0]["kept_mask"]


def test_a_run_of_too_few_images_has_that_for_a_headline(small_run: Path) -> None:
    (said,) = measured(str(small_run), draws=100)["headline"]
    assert said == "3 images are fewer than 10: nothing about pruning can be read from its answers."


def test_a_folder_without_a_row_or_an_image_folder_that_is_none_is_one_line(tmp_path: Path, refused: Refused) -> None:
    folder = make_run(tmp_path / "run", images=2)
    shutil.rmtree(folder / "rows")
    refused("no finished shard yet", viewed_runs, [folder], None)
    refused("not a run folder", viewed_runs, [tmp_path], None)
    refused("is no folder", viewed_runs, [folder], tmp_path / "nowhere")


def test_columns_that_no_file_has_and_numbers_of_any_length_are_answered(answers: PageData, refused: Refused) -> None:
    for columns in ("question", "margin_full", "question,target_text", "no_such_column"):
        found = answers.rows({"columns": columns, "limit": "3"})
        assert len(found["rows"]) == 3
        assert all(list(row) == found["columns"] for row in found["rows"])
    for name in ("offset", "limit", "run", "near"):
        for digits in (20, 400, 5000):
            with suppress(SightlineError):
                answers.rows({name: "9" * digits})
    refused("a number of 400 digits, which no column holds", answers.rows, {"query": f"margin > {'9' * 400}"})


FIELDS = tuple(column for column in FIELD_COLUMNS if column.name.startswith(("outcome", "swapped")))
PAGE = [["Total", 0.1, 0.1, 0.3, 0.2], ["4.65", 0.6, 0.1, 0.8, 0.2], ["731.84", 0.6, 0.3, 0.8, 0.4]]


def swapping(row: dict[str, Any]) -> None:
    """Every wrong answer of grid is another text of the page; a transcription lost the last one."""
    wrong = row["selector"] == "grid" and not row["correct"]
    row |= {"kind": "=cmd()", "outcome": "right", "swapped": wrong, "text_hits": [1.0, 0.5, 0.4]}
    if wrong:
        row |= {"outcome": "swapped", "swapped_text": "731.84", "swapped_box": PAGE[2][1:]}


@pytest.fixture(scope="module")
def swapped(tmp_path_factory: pytest.TempPathFactory) -> PageData:
    home = tmp_path_factory.mktemp("swapped")
    columns = (*YesNo.columns, *FIELDS, next(one for one in Transcription.columns if one.name == "text_hits"))
    dark = io.BytesIO()
    Image.new("RGB", (640, 480), (20, 18, 30)).save(dark, "JPEG")
    make_run(
        home / "run", images=12, edit_row=swapping, scorer_columns=columns, extra={"page": PAGE},
        edit_image=lambda record: record.update(preview=dark.getvalue()),
    )  # fmt: skip
    probes = home / "run" / "probes.jsonl"
    told = json.loads(probes.read_text().splitlines()[-1])
    twin = {**told, "view": "twin", "question": "What is the glorp?"}
    probes.write_text(probes.read_text() + json.dumps(twin) + "\n")
    return PageData(viewed_runs([home / "run"], None))


def test_menus_and_buttons_are_those_that_the_rows_of_a_run_can_answer(swapped: PageData, answers: PageData) -> None:
    (facts,) = swapped.about_runs({})["runs"]
    assert facts["menus"]["arm"] == facts["arms"]
    assert facts["menus"]["outcome"] == ["right", "swapped"]
    assert "view" not in facts["menus"], "a menu of one entry chooses nothing"
    assert list(facts["chips"]) == ["right", "wrong", "unsupported", "swapped"]
    asked = swapped.runs[0].asked()
    wrong = {record["arm"] for record in asked.records(asked.matching(facts["chips"]["swapped"]), ["arm"])}
    assert wrong == {"grid:0.3"}
    assert len(asked.matching('outcome == "swapped" and not correct')) == len(asked.matching("swapped")) > 0
    assert len(asked.matching("correct")) + len(asked.matching("not correct")) == asked.rows.count
    assert "swapped" not in answers.about_runs({})["runs"][0]["chips"]


def test_a_row_has_its_question_and_a_small_picture_and_no_cell_that_goes_along_is_a_formula(swapped: PageData) -> None:
    assert "'=cmd()" in swapped.take({"format": "csv"}), "a spreadsheet would compute it"
    row = swapped.rows({"limit": "1"})["rows"][0]
    assert row["question"].startswith("Does the image contain")
    assert row["target_text"]
    small, media = swapped.image({"key": row["image_key"], "source": "thumbnail"})
    whole, _ = swapped.image({"key": row["image_key"], "source": "preview"})
    assert media == "image/jpeg"
    assert Image.open(io.BytesIO(small)).size == (160, 120)
    assert len(small) < len(whole)


def test_a_probe_is_asked_in_the_words_of_its_view(swapped: PageData) -> None:
    probes = swapped.runs[0].reader.probes
    name = json.loads((swapped.runs[0].folder / "probes.jsonl").read_text().splitlines()[-1])["id"]
    assert probes.text(name, "twin", "question") == "What is the glorp?"
    assert probes.text(name, "orig", "question") == probes.text(name, "blank", "question") != "What is the glorp?"


def test_a_case_says_where_an_answer_was_taken_from_and_what_a_transcription_lost(swapped: PageData) -> None:
    asked = swapped.runs[0].asked()
    (record,) = asked.records(asked.matching("swapped")[:1], ["probe_id"])
    case = swapped.case({"probe": record["probe_id"], "arms": "full|grid:0.3"})
    full, grid = case["panels"]
    assert (grid["swapped_text"], grid["swapped_box"]) == ("731.84", PAGE[2][1:])
    assert full["swapped_box"] is None
    assert full["lost"] == grid["lost"] == [PAGE[2][1:]], "half of a text is not lost"
    assert {image["veil"] for image in case["images"].values()} == {PALE}


# A bundle: one script of all modules, the data of the chosen cases, images as files.


def test_all_modules_are_joined_asked_for_at_once_and_declare_no_name_twice() -> None:
    script = joined_script()
    modules = {file.stem for file in PAGES.glob("*.js")}
    assert set(re.findall(r"^// (\w+)$", script, re.MULTILINE)) == modules
    assert "import " not in script
    assert not re.search(r"^export", script, re.MULTILINE)
    assert "</script" not in script
    for file in PAGES.glob("*.js"):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("import")]
        assert len(IMPORT.findall(file.read_text(encoding="utf-8"))) == len(lines), file.name
    declared = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.MULTILINE)
    assert [name for name, count in Counter(declared).items() if count > 1] == []
    page = (PAGES / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r"/view/(\w+)\.js", page)) == modules - {"held_answers"}


def test_a_bundle_holds_what_was_chosen_and_no_more(run: Path, tmp_path: Path, refused: Refused) -> None:
    answers = PageData(viewed_runs([run], None))
    page = write_bundle(answers, tmp_path / "site", 'label == "no" and arm == "full"', 3)
    text = page.read_text(encoding="utf-8")
    held = json.loads(re.search(r'id="bundle">(.*?)</script>', text)[1])  # type: ignore[index]
    assert list(held["cases"][0]) == ["img0000:no", "img0001:no", "img0002:no"]
    assert len(held["rows"][0]) == 3 * 8
    assert sorted(file.name for file in (tmp_path / "site" / "images").iterdir()) == sorted(
        name.removeprefix("images/") for name in held["images"][0].values()
    )
    assert "unsafe-inline" not in text
    assert str(run.parent) not in text
    refused("is not empty", write_bundle, answers, tmp_path / "site", "", 3)
    refused("at least one case", write_bundle, answers, tmp_path / "other", "ecr > 2", 3)
    assert not (tmp_path / "other").exists()
