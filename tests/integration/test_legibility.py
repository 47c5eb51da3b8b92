"""Rows of real runs: what the crop leaves visible, and how large characters arrive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sightline.auditing.audit import audit
from sightline.statistics.summaries import arm_points

TOKEN_PIXELS = {"qwen3vl": 32 * 32, "llava": 14 * 14, "internvl": 56 * 56}
"""Patches of 16, 14 and 28 pixels, four of them in a token but for LLaVA."""
MERGES = {"qwen3vl": "tome:0.3", "llava": "visionzip:0.3", "internvl": "tome:0.3:metric=tokens"}


@pytest.mark.parametrize("model", TOKEN_PIXELS)
def test_rows_say_what_is_visible_and_how_large_characters_arrive(config: Any, model: str) -> None:
    run = audit(config(model, arms=["full", "random:0.3", MERGES[model]], limit=12 if model == "llava" else 3))
    frame = run.frame()
    full = frame[frame["arm"] == "full"]
    assert (full["ecr"] == full["visible"]).all(), "to the last bit"
    assert arm_points(full, ["relative_pos_ecr"])["relative_pos_ecr"] == 1.0
    assert frame.groupby("probe_id")["visible"].nunique().eq(1).all(), "whatever the arm"
    assert (frame["visible"] < 1).any() == (model == "llava"), "LLaVA alone crops"

    probes = {probe["id"]: probe for probe in run.probes}
    images = {record["image_key"]: record for record in run.images.to_pylist()}
    for row in full.to_dict("records"):
        record = images[row["image_key"]]
        sides = [
            ((r[2] - r[0]) * record["width"], (r[3] - r[1]) * record["height"])
            for r in probes[row["probe_id"]]["regions"]
        ]
        cells = np.frombuffer(record["cells"], "<f4").reshape(-1, 4).astype(float)
        area = np.prod(cells[:, 2:] - cells[:, :2], axis=1).min() * record["width"] * record["height"]
        scale = min(1.0, TOKEN_PIXELS[model] / area) ** 0.5
        expected = min(min(side) for side in sides) * scale * row["visible"] ** 0.5
        assert row["legibility"] == pytest.approx(expected, rel=1e-4)

    by_probe = frame.pivot(index="probe_id", columns="arm", values="legibility")
    for arm in ("random:0.3", MERGES[model]):
        assert (by_probe[arm] <= by_probe["full"]).all()
        assert by_probe[arm].mean() < by_probe["full"].mean()
    merged = frame[frame["arm"] == MERGES[model]]
    if (merged["ecr"] == merged["visible"]).all():  # a merge that covers everything and is less legible for it
        assert arm_points(merged, ["relative_pos_ecr"])["relative_pos_ecr"] == 1.0


def test_fewer_pixels_cover_as_much_and_are_less_legible(config: Any, tmp_path: Any) -> None:
    frames = [
        audit(config("qwen3vl", arms=["full"], out=tmp_path / str(side), image_options=options)).frame()
        for side in (448, 224)
        for options in [{"min_pixels": side**2, "max_pixels": side**2}]
    ]
    assert all((frame["ecr"] == 1.0).all() for frame in frames)
    large, small = (frame["legibility"].to_numpy() for frame in frames)
    assert small / large == pytest.approx(np.full(len(large), 0.5), rel=0.25), "sizes are rounded to whole tokens"
