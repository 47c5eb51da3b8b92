"""One probe of a run: its texts, masks, cells and picture."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from sightline.core.row import row_schema
from sightline.geometry.marks import SWAPPED_FOR, overlay
from sightline.rows.picture import GAP, PER_LINE, TEXTS, ArmPicture, quoted, stored_geometry, with_texts
from sightline.rows.run import Run, load_run
from sightline.store.folder import RunFolder
from sightline.store.shard_files import pack_mask
from tests.changed_run import rewritten
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.open_questions import make_open_run
from tests.runs.pages import missing
from tests.runs.yes_no import make_run

PROBE = "textocr-f0af1d791168279c:hard-small-pos"
IMAGE = "train/f0af1d791168279c.jpg"
QUARTERS = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]], dtype="<f4")


@pytest.fixture(scope="module")
def run(data: Path) -> Run:
    return load_run(data / "recorded_run")


def test_a_frame_says_what_was_asked_each_row_in_the_words_of_its_own_view(run: Run) -> None:
    frame = run.frame()
    asked = {probe["id"]: probe for probe in run.probes}
    for row in frame.to_dict("records"):
        assert [row[name] for name in TEXTS] == [asked[row["probe_id"]][name] for name in TEXTS]
    assert list(run.frame(texts=False).columns) == run.rows.column_names
    on_disk = {*row_schema().names, *run.rows.column_names}
    assert not set(TEXTS) & on_disk, "they stand in the probes once and not in every row"


def test_an_intervention_is_asked_about_as_the_original_and_a_scorers_own_column_stays() -> None:
    rows = pd.DataFrame({"probe_id": ["p", "p", "p"], "view": ["replaced", "orig", "blank"]})
    original = {"id": "p", "question": "Is it OPEN?", "target_text": "t", "source_text": "s"}
    probes = [{**original, "view": "replaced", "question": "Is it EXIT?"}, original]
    told = ["Is it EXIT?", "Is it OPEN?", "Is it OPEN?"]
    assert with_texts(rows, probes)["question"].tolist() == told
    own = with_texts(rows.assign(question="mine"), probes)
    assert list(own.columns) == ["probe_id", "view", "question", "target_text", "source_text"]
    assert set(own["question"]) == {"mine"}


def test_masks_come_as_one_flag_per_cell(run: Run) -> None:
    for arm in ("full", "target:0.3", "visionzip_qwen:0.4"):
        masks = run.masks(arm)
        assert list(masks) == [probe["id"] for probe in run.probes]
        for probe, mask in masks.items():
            row = run.row(probe, arm)
            assert mask.dtype == np.bool_
            assert mask.shape == (row["n_tokens"],)
            assert pack_mask(mask) == row["kept_mask"]
    anchors, sources = run.masks("visionzip_qwen:0.4"), run.masks("visionzip_qwen:0.4", lineage=True)
    assert all((sources[probe] >= anchors[probe]).all() for probe in anchors)
    assert all(sources[probe].sum() > anchors[probe].sum() for probe in anchors)
    kept, same = run.masks("target:0.3"), run.masks("target:0.3", lineage=True)
    assert all(np.array_equal(kept[probe], same[probe]) for probe in kept)


def test_cells_are_found_by_probe_and_by_row(run: Run) -> None:
    asked, cells = run.frame().query("arm == 'target:0.3' and probe_id == @PROBE").iloc[0], run.cells(PROBE)
    assert cells.shape == (asked["n_tokens"], 4)
    assert np.array_equal(run.cells(asked), cells)
    assert np.array_equal(run.cells(run.row(PROBE, "target:0.3")), cells)
    assert np.array_equal(run.cells(PROBE, "full+blank"), cells), "painting over an image moves no cell"


def test_an_arm_that_is_shown_a_smaller_image_has_the_cells_and_the_masks_of_that(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", images=1, arms=("full", "grid:0.3"))
    (images,) = (made / "images").glob("*.parquet")
    table = pq.read_table(images)
    record = {**table.to_pylist()[0], "image_key": "img0000.jpg#fit=4t", "cells": QUARTERS.tobytes()}
    store = RunFolder(made)
    store.write_image_table(0, "orig", table.from_pylist([*table.to_pylist(), record], schema=table.schema))
    (file,) = (made / "rows").glob("*grid*/*.parquet")
    smaller = {"image_key": "img0000.jpg#fit=4t", "kept_mask": pack_mask(np.ones(4))}
    rewritten(file, lambda table: table.from_pylist([row | smaller for row in table.to_pylist()], schema=table.schema))
    run = load_run(made)
    assert run.row("img0000:yes", "grid:0.3")["n_tokens"] == 300
    assert run.cells("img0000:yes", "grid:0.3").shape == (4, 4)
    assert run.masks("grid:0.3")["img0000:yes"].tolist() == [True] * 4
    assert run.masks("full")["img0000:yes"].shape == (300,)
    picture = run.picture("img0000:yes", "grid:0.3", images=tmp_path / "nowhere")
    assert picture.info["sources"] == ["preview"], "no file has the pixels that the arm was shown"


def test_coverage_is_measured_over_the_cells_of_the_image_that_an_arm_was_shown() -> None:
    """A mask has a place for each of them, however many tokens the full prefix has."""
    row = {"probe_id": "p", "image_key": "a.jpg#fit=4t", "n_tokens": 16, "lineage_mask": None}
    rows = pa.Table.from_pylist([{**row, "kept_mask": pack_mask(np.array([True, True, False, False]))}])
    images = pa.Table.from_pylist([{"image_key": "a.jpg#fit=4t", "cells": QUARTERS.tobytes()}])
    (measured,) = stored_geometry(rows, images, {"p": [(0.0, 0.25, 1.0, 0.75)]})
    assert measured is not None
    assert measured.ecr == 0.5


def test_a_picture_has_the_pixels_of_its_file_or_what_an_intervention_painted_over_it(
    run: Run, data: Path, tmp_path: Path, refused: Refused
) -> None:
    picture = run.picture(PROBE, "target:0.3", images=data / "mini_textocr")
    assert picture.info["sources"] == ["file"]
    image = Image.open(data / "mini_textocr" / IMAGE)
    kept, regions = run.masks("target:0.3")[PROBE], run.probes[0]["regions"]
    expected = overlay(image, run.cells(PROBE), kept, regions)
    assert picture.size == image.size
    assert np.array_equal(np.asarray(picture), np.asarray(expected))
    preview = run.picture(PROBE, "full")
    assert preview.info["sources"] == ["preview"]
    assert np.asarray(preview).std() > 10
    picture = run.picture(PROBE, "full+occlude_evidence", images=data / "mini_textocr")
    assert picture.info["sources"] == ["preview"]
    (x1, y1, x2, y2) = run.probes[0]["regions"][0]
    width, height = picture.size
    middle = np.asarray(picture, dtype=float)[round((y1 + y2) / 2 * height), round((x1 + x2) / 2 * width)]
    assert np.abs(middle - 127).max() < 12
    (tmp_path / "train").mkdir()
    other = next(path for path in (data / "mini_textocr" / "train").glob("*.jpg") if path.name not in IMAGE)
    shutil.copy(other, tmp_path / IMAGE)
    refused("holds another train/f0af1d791168279c.jpg than the one", run.picture, PROBE, "full", images=tmp_path)


def test_arms_stand_side_by_side_under_their_captions_and_all_plain_ones_in_lines(run: Run, data: Path) -> None:
    arms = ("full", "target:0.3", "visionzip_qwen:0.4")
    one = run.picture(PROBE, "full", images=data / "mini_textocr")
    sheet = run.picture(PROBE, *arms, images=data / "mini_textocr")
    assert sheet.width == 3 * one.width + 4 * GAP
    assert sheet.info["sources"] == ["file"] * 3
    above = sheet.height - one.height - GAP
    pixels = np.asarray(sheet, dtype=int)
    for place, arm in enumerate(arms):
        left = GAP + place * (one.width + GAP)
        alone = run.picture(PROBE, arm, images=data / "mini_textocr")
        assert np.array_equal(pixels[above : above + one.height, left : left + one.width], np.asarray(alone))
        assert (pixels[:above, left : left + one.width] < 100).any(), "a caption"
    plain = [arm for arm in run.arms if "+" not in arm]
    assert PER_LINE < len(plain) <= 2 * PER_LINE
    assert run.picture(PROBE).info["sources"] == ["preview"] * len(plain)
    assert run.picture(PROBE).height == 2 * run.picture(PROBE, *plain[:PER_LINE]).height


def test_the_original_is_meant_unless_another_view_is_named_and_what_is_misspelt_is_answered(
    run: Run, tmp_path: Path, refused: Refused
) -> None:
    refused("has no arm 'taget:0.3'; did you mean 'target:0.3'?", run.masks, "taget:0.3")
    refused("small-po'; did you mean ", run.picture, PROBE[:-1], "full")
    refused("has no view 'gray' under full; choose one of orig", run.row, PROBE, "full", view="gray")

    def two_views(row: dict[str, object]) -> None:
        """The negative of each pair becomes a second view of the positive."""
        if str(row["probe_id"]).endswith(":no"):
            row.update(probe_id=str(row["probe_id"]).replace(":no", ":yes"), view="wrong_image")

    made = load_run(make_run(tmp_path / "run", images=2, arms=("random:0.3",), edit_row=two_views))
    assert made.row("img0000:yes", "random:0.3")["view"] == "orig"
    assert made.row("img0000:yes", "random:0.3", "wrong_image")["view"] == "wrong_image"
    original, other = made.masks("random:0.3"), made.masks("random:0.3", view="wrong_image")
    assert list(original) == list(other) == ["img0000:yes", "img0001:yes"]
    assert not np.array_equal(original["img0000:yes"], other["img0000:yes"])


def test_a_picture_of_a_real_scan_is_as_large_as_the_scan_and_shows_its_line(receipts: Path, tmp_path: Path) -> None:
    """A scan of 1,000 pixels and more, whose preview is smaller: the outlined line is legible only from the file."""
    from sightline.auditing.audit import audit
    from sightline.auditing.config import AuditConfig
    from sightline.checks.demo import asset
    from sightline.probes import HardPairRules, build_hard_pairs, load_regions, write_probes

    records = load_regions(receipts / "receipts.json").records
    pairs = build_hard_pairs(records, HardPairRules(limit_images=1, max_area=0.02))
    write_probes(tmp_path / "probes.jsonl", pairs.probes)
    asked = {"probes": tmp_path / "probes.jsonl", "images": receipts, "out": tmp_path / "run", "device": "cpu"}
    run = audit(AuditConfig(model=str(asset("reader")), arms=["full"], **asked))
    probe = run.probes[0]
    sharp, small = run.picture(probe["id"], "full", images=receipts), run.picture(probe["id"], "full")
    with Image.open(receipts / probe["image"]) as scan:
        assert sharp.size == scan.size
    assert max(small.size) <= 640 < max(sharp.size)
    x1, y1, x2, y2 = probe["regions"][0]

    def edges(picture: Image.Image) -> float:
        """Mean difference of neighbours within the line, in the pixels of the scan."""
        box = (x1 * sharp.width, y1 * sharp.height, x2 * sharp.width, y2 * sharp.height)
        line = np.asarray(picture.resize(sharp.size).crop(tuple(map(round, box))).convert("L"), dtype=float)
        return float(np.abs(np.diff(line, axis=1)).mean())

    assert edges(sharp) > 1.2 * edges(small)


LARGER, VALUE = "page000:larger", "page000:value"


@pytest.fixture(scope="module")
def open_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    arms = ("full", "target:0.3", "anti_evidence:0.3")
    return load_run(make_open_run(tmp_path_factory.mktemp("open") / "run", images=3, arms=arms))


def test_an_open_question_stands_above_its_pictures_which_frame_a_swapped_answer(open_run: Run) -> None:
    full = open_run.frame()[lambda rows: rows["arm"] == "full"].set_index("probe_id")
    assert len(tuple(full["answers"][VALUE])) == 10, "textvqa: all ten"
    assert full["roles"][LARGER] == ("answer_value", "context", "comparison_anchor")
    assert list(open_run.frame(texts=False).columns) == open_run.rows.column_names
    one, two = open_run.picture(LARGER, "full"), open_run.picture(LARGER, "full", "target:0.3")
    assert two.height > one.height + 60
    asked = next(probe for probe in open_run.probes if probe["id"] == LARGER)
    row = open_run.row(LARGER, "full")
    drawn = ArmPicture(row, {}, asked)
    assert drawn.heading[0] == asked["question"]
    assert drawn.heading[1].startswith(f"accepted: “{asked['answers'][0]}” · V the answer's value")
    assert drawn.caption == ("full", f"“{row['answer']}” · score {row['score']:.2f} · coverage 1.00")
    assert (quoted(""), quoted("a\nb"), len(quoted("x" * 100))) == ("nothing", "“a b”", 34)
    row = open_run.row(LARGER, "target:0.3")
    record = next(each for each in open_run.images.to_pylist() if each["image_key"] == row["image_key"])
    plain = ArmPicture({**row, "swapped_box": None}, record, asked)
    swapped = ArmPicture({**row, "swapped_box": [0.1, 0.1, 0.3, 0.3]}, record, asked)
    assert swapped.heading[1] == f"{plain.heading[1]}, S answered from here"
    page = plain.pixels(None)[0]
    red = tuple(int(SWAPPED_FOR.colour[i : i + 2], 16) for i in (1, 3, 5))
    found = [(np.asarray(arm.drawn(page)) == red).all(axis=-1).any() for arm in (plain, swapped)]
    assert found == [False, True]


def test_show_tells_question_accepted_answers_roles_and_scores(open_run: Run, tmp_path: Path) -> None:
    shown = sightline("show", open_run.path, VALUE, "--out", tmp_path / "picture.png")
    assert (tmp_path / "picture.png").is_file(), "all arms drawn"
    answer = open_run.row(VALUE, "full")["accepted"]
    told = (f"{answer} (10 times)", "L label of the field: ", "V the answer's value: ", "textvqa", "Score", "loss")
    assert missing(shown.output, *told) == []
    assert "margin" not in shown.output
    assert "target  " not in shown.output.split("regions")[0], "an open question looks for nothing but itself"
