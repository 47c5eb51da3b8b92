"""An image is its pixels: ids of one picture are one cluster wherever rows become statistics."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.analysis.policy_replay import AskedProbes
from sightline.gate.decisions import run_gate
from sightline.rows.images import image_cells, image_records
from sightline.rows.run import load_run, same_images
from sightline.rows.source import read_source
from sightline.rows.thresholds import on_development_side
from sightline.statistics.summaries import arm_summary
from sightline.view.runs import ViewedRun
from sightline_paper.lines import Threshold, rows_at
from tests.refusals import Refused
from tests.runs.yes_no import grid_cells, make_run

ARMS = ("full", "target:0.3")
NOTE = "4 images have the same pixels as another (first: img0001 shows what img0000 shows): they count as one"


def group_of(image_id: str) -> str:
    """The first of three neighbours."""
    return f"img{int(image_id[-4:]) // 3 * 3:04d}"


def alike(column: str) -> Callable[[dict[str, Any]], None]:
    """Image records by which three neighbours are one picture."""

    def edit(record: dict[str, Any]) -> None:
        record[column] = f"sha256:of {group_of(record['image_id'])}"

    return edit


@pytest.fixture(scope="module", params=["pixels", "digest"])
def joined(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six images that are two pictures, by their pixels or, in a folder of an earlier release, by their files."""
    folder = tmp_path_factory.mktemp("joined") / "run"
    return make_run(folder, images=6, arms=ARMS, edit_image=alike(request.param))


def test_three_names_of_a_picture_give_the_intervals_of_one_and_a_note_names_them(joined: Path, tmp_path: Path) -> None:
    def one_id(row: dict[str, Any]) -> None:
        row["image_id"] = group_of(row["image_id"])

    honest = make_run(tmp_path / "honest", images=6, arms=ARMS, edit_row=one_id)
    left, right = (arm_summary(load_run(path).frame(), draws=200) for path in (joined, honest))
    pd.testing.assert_frame_equal(left, right)
    for source in map(read_source, ([joined], [honest])):
        assert source.frame["image_id"].nunique() == 2
    compact = load_run(joined).compact_frame(lambda name: True)
    assert compact["image_id"].cat.categories.tolist() == ["img0000", "img0003"]
    assert set(load_run(joined).rows.column("image_id").to_pylist()) == {f"img000{i}" for i in range(6)}, "as stored"
    assert read_source([joined]).notes.count(NOTE) == 1
    assert read_source([joined, joined], ["A", "B"]).notes.count(NOTE) == 1
    assert NOTE in run_gate(joined, ["accuracy(full) >= 0.1"], draws=200)[1]
    viewed = ViewedRun(joined, "run", None)
    assert viewed.facts()["images"] == 2
    assert NOTE in viewed.numbers()["notes"]


def test_images_that_are_not_shown_to_be_one_stay_apart(tmp_path: Path) -> None:
    made = make_run(tmp_path / "run", images=4, arms=ARMS, edit_image=lambda record: record.update(digest=None))
    run = load_run(made)
    assert run.frame()["image_id"].nunique() == 4
    assert run.joined == ""

    def wrong(row: dict[str, Any]) -> None:
        """Row and record of a control name the image that is asked about, and show another."""
        row["image_key"] = f"img{(int(row['image_id'][-4:]) + 1) % 4:04d}.jpg@orig"

    def half_wrong(row: dict[str, Any]) -> None:
        if row["probe_id"].endswith("no"):
            wrong(row)
            row["view"] = "wrong_image"

    assert load_run(make_run(tmp_path / "half", images=4, arms=ARMS, edit_row=half_wrong)).same_images == {}
    plain = make_run(tmp_path / "plain", images=4, arms=ARMS)
    other = make_run(tmp_path / "other", images=4, arms=ARMS, edit_row=wrong)
    assert same_images([load_run(plain), load_run(other)]) == {}, "though they call themselves original"


def test_images_of_an_older_run_are_joined_as_those_of_a_newer_one_beside_it(tmp_path: Path) -> None:
    new = make_run(tmp_path / "new", images=6, arms=ARMS, edit_image=alike("pixels"))
    old = make_run(tmp_path / "old", images=6, arms=ARMS)
    source = read_source([new, old], ["A", "B"])
    assert [one.frame["image_id"].nunique() for one in source.runs] == [2, 2]


@pytest.mark.parametrize("column", ["digest", "pixels"])
def test_a_development_run_with_the_same_pictures_is_refused_by_name(
    tmp_path: Path, column: str, refused: Refused
) -> None:
    def elsewhere(row: dict[str, Any]) -> None:
        row["image_id"] = f"dev-{row['image_id']}"

    def picture(offset: int) -> Callable[[dict[str, Any]], None]:
        def edit(record: dict[str, Any]) -> None:
            record[column] = f"sha256:of {int(record['image_id'][-4:]) + offset}"

        return edit

    here = make_run(tmp_path / "here", images=8, arms=ARMS, edit_image=picture(0))
    there = make_run(tmp_path / "there", images=8, arms=ARMS, seed=9, edit_row=elsewhere, edit_image=picture(6))
    apart = make_run(tmp_path / "apart", images=8, arms=ARMS, seed=9, edit_row=elsewhere, edit_image=picture(8))
    refusal = "here share 2 images (first: dev-img0000, which is img0006 there)"
    asked: dict[str, Any] = {"developments": [there], "threshold": "own-dev"}
    refused(refusal, read_source, [here], **asked)
    refused(refusal, run_gate, here, ["accuracy(full) >= 0.1"], **asked, draws=200)
    assert read_source([here], developments=[apart], threshold="own-dev").runs

    def study(development: Path) -> Any:
        runs = {"confirmation": load_run(here), "development": load_run(development)}
        return SimpleNamespace(
            run=lambda model, probes, *rest: runs[probes], rows=lambda model, probes, *rest: runs[probes].frame()
        )

    refused(refusal, rows_at, study(there), "qwen", "confirmation", Threshold("own"))
    assert len(rows_at(study(apart), "qwen", "confirmation", Threshold("own")))


def test_ids_of_one_picture_fall_on_the_same_side_of_a_split(joined: Path) -> None:
    frame = load_run(joined).frame()
    for rows in (frame, read_source([joined]).frame):
        sides = rows.assign(dev=on_development_side(rows)).groupby(
            rows["probe_id"].astype(str).map(lambda name: group_of(name[:7]))
        )
        assert (sides["dev"].nunique() == 1).all()
    full = frame[frame["arm"] == "full"]
    asked = AskedProbes.of(full)
    assert pd.Series(asked.sides).groupby(asked.images).nunique().max() == 1


def test_questions_about_one_picture_fall_on_the_same_side_of_a_split() -> None:
    ids = pd.Series([f"qa:{i}" for i in range(60)])
    images = pd.Series([f"p{i // 3}" for i in range(60)])
    questions = pd.DataFrame({"probe_id": ids, "label": "open", "task": "qa", "score": 1.0})
    asked, alone = (AskedProbes.of(questions.assign(image_id=names)) for names in (images, ids))
    assert set(asked.sides) == {"dev", "test"}
    assert pd.Series(asked.sides).groupby(asked.images).nunique().max() == 1
    first = ids.groupby(images).transform("min") == ids
    assert asked.sides[first].tolist() == alone.sides[first].tolist(), "a question alone falls as the paper's do"


# Records of some images, and the cells of all of them.


def test_only_asked_images_come_and_those_of_one_raster_share_their_cells(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", images=4, arms=("full",)))
    found = image_records(run, {"img0002.jpg@orig", "img0000.jpg@orig", "elsewhere.jpg"})
    expected = {record["image_key"]: record for record in run.images.to_pylist()}
    assert found == {key: expected[key] for key in ("img0000.jpg@orig", "img0002.jpg@orig")}
    of_image, sets = image_cells(run)
    assert set(of_image) == set(run.images.column("image_key").to_pylist())
    assert set(of_image.values()) == {0}
    np.testing.assert_array_equal(sets[0], grid_cells())
