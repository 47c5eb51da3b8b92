"""Records of some images, and the cells of all of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from sightline.rows import load_run
from sightline.rows.images import image_cells, image_records
from tests.unit.report.fake_run import grid_cells, make_run


def test_only_asked_images_come_and_unknown_ones_are_left_out(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", images=4, arms=("full",)))
    found = image_records(run, {"img0002.jpg@orig", "img0000.jpg@orig", "elsewhere.jpg"})
    expected = {record["image_key"]: record for record in run.images.to_pylist()}
    assert found == {key: expected[key] for key in ("img0000.jpg@orig", "img0002.jpg@orig")}


def test_images_of_one_raster_share_their_cells(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", images=4, arms=("full",)))
    of_image, sets = image_cells(run)
    assert set(of_image) == set(run.images.column("image_key").to_pylist())
    assert set(of_image.values()) == {0}
    np.testing.assert_array_equal(sets[0], grid_cells())
