"""What is stored of an image beside its answers, and of a probe in its row."""

import io
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from sightline.answering.answerer import Answered
from sightline.answering.materialise import Trace
from sightline.arms.arm import parse_arm
from sightline.auditing.loop import DETAIL_SIDE, PREVIEW_SIDE, ROW_FACTS, details, preview, row_records
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.geometry.cells import grid_cells
from sightline.geometry.marks import surroundings

WORD = (0.4, 0.50, 0.45, 0.51)


def contrast(image: Image.Image, box: tuple[float, float, float, float]) -> float:
    x1, y1, x2, y2 = (v * side for v, side in zip(box, (*image.size, *image.size), strict=True))
    return float(np.asarray(image.convert("L").crop((int(x1), int(y1), int(x2), int(y2))), float).std())


def test_a_detail_is_sharp_where_the_preview_is_a_smear_and_kept_once() -> None:
    """Of a tall page with a word of stripes two pixels wide, which a preview cannot hold."""
    page = Image.new("RGB", (1200, 3000), "white")
    for x in range(480, 540, 4):
        ImageDraw.Draw(page).rectangle((x, 1500, x + 1, 1530), fill="black")
    (detail,) = details(page, [WORD])
    crop = Image.open(io.BytesIO(detail.jpeg))
    left, top, right, bottom = detail.box
    x1, x2 = ((WORD[place] - left) / (right - left) for place in (0, 2))
    y1, y2 = ((WORD[place] - top) / (bottom - top) for place in (1, 3))
    assert 0 <= min(x1, y1) < max(x2, y2) <= 1
    small = Image.open(io.BytesIO(preview(page.copy())))
    assert max(small.size) == PREVIEW_SIDE
    assert contrast(crop, (x1, y1, x2, y2)) > 90
    assert contrast(small, WORD) < 40
    assert max(crop.size) <= DETAIL_SIDE
    assert len(detail.jpeg) < 12_000
    assert len(details(page, [WORD, WORD, (0.1, 0.1, 0.2, 0.12)])) == 2
    assert details(Image.new("RGB", (PREVIEW_SIDE, 300)), [WORD]) == []
    assert details(page, []) == []


def test_surroundings_stay_within_the_image_and_hold_the_regions() -> None:
    for regions in ([WORD], [(0.0, 0.0, 0.02, 0.01)], [(0.9, 0.95, 1.0, 1.0), WORD], [(0.0, 0.0, 1.0, 1.0)]):
        x1, y1, x2, y2 = surroundings(regions, 1200, 3000)
        assert 0 <= x1 < x2 <= 1200
        assert 0 <= y1 < y2 <= 3000
        assert x2 - x1 >= 240
        for a, b, c, d in regions:
            assert x1 <= a * 1200 + 1e-6
            assert y1 <= b * 3000 + 1e-6
            assert x2 >= c * 1200 - 1e-6
            assert y2 >= d * 3000 - 1e-6


@pytest.mark.parametrize(("usual", "keep"), [(None, 0.75), (12, 0.25)])
def test_what_is_kept_is_a_share_of_the_image_at_its_usual_size(usual: int | None, keep: float) -> None:
    probe = Probe("p", "x.png", "x", "Is it there?", "yes", "it", "it", ())
    image = Encoded(torch.zeros(4, 2), (), grid_cells(2, 2), ((2, 2),), usual_n=usual)
    mask = np.array([True, True, True, False])
    trace = Trace(mask, mask, None, 3, [4, 2], 9, 8, 0.0, 0.0, 0.0)
    answerer = SimpleNamespace(backbone=SimpleNamespace(form=lambda method: method))
    shard = SimpleNamespace(probes=[probe])
    work: Any = SimpleNamespace(shard=shard, encoded=[image], geometries=[None], answerer=answerer)
    contract = {**dict.fromkeys(ROW_FACTS, "?"), "box_source": "annotation", "versions": {}, "conditions": {}}
    answered = Answered({"predicted": "yes", "correct": True}, trace, 0.0)
    (row,) = row_records(parse_arm("target:0.3"), work, [answered], contract, None)
    assert (row["keep"], row["keep_spent"]) == (keep, keep)
    assert (row["n_tokens"], row["k_tokens"]) == (usual or 4, 3)
    assert row["keep_layer_mean"] == keep
