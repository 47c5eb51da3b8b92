from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.errors import SightlineError
from sightline.report.cases import (
    LARGEST_SIDE,
    choose_cases,
    claims_coverage,
    mark_rows,
    pack_cases,
    small_jpeg,
    touching,
)
from sightline.report.hero import make_hero
from sightline.report.page import embed_json
from sightline.report.source import Source, read_source
from tests.unit.report.fake_run import HOSTILE, grid_cells, make_run


@pytest.fixture(scope="module")
def source(run: Path) -> Source:
    return read_source([run])


def test_the_first_case_is_correct_without_evidence(source: Source) -> None:
    first = choose_cases(source, 5)[0]
    row = source.frame[(source.frame["arm"] == first.featured) & (source.frame["probe_id"] == first.probe_id)].iloc[0]
    assert row["label"] == "yes"
    assert row["correct"]
    assert row["ecr"] <= 1e-12
    assert row["selector"] == "target", "a method comes before a control"


def test_evidence_lost_to_a_crop_does_not_lead(tmp_path: Path) -> None:
    """What the processor cut away before pruning says nothing about the selector."""

    def crop(row: dict[str, Any]) -> None:
        if row["image_id"] < "img0010":
            row["ecr"] = row["anchor_ecr"] = 0.0

    source = read_source([make_run(tmp_path / "run", edit_row=crop)])
    first = choose_cases(source, 3)[0]
    assert first.probe_id >= "img0010"
    gone = source.frame[(source.frame["label"] == "yes") & source.frame["correct"] & (source.frame["ecr"] == 0)]
    strongest = gone.sort_values("margin").iloc[-1]
    assert strongest["image_id"] < "img0010", "the largest margin is among the cropped ones"


def test_cases_are_bounded_unique_and_never_about_full(source: Source) -> None:
    cases = choose_cases(source, 12)
    assert len(cases) == 12
    assert len({case.probe_id for case in cases}) == 12
    assert "full" not in {case.featured for case in cases}
    assert len({case.featured for case in cases}) > 4, "arms take turns"
    assert choose_cases(source, 0) == []


def test_marks_follow_their_definitions(source: Source) -> None:
    rows = mark_rows(source.runs[0])
    assert (rows["unsupported"] == ((rows["label"] == "yes") & rows["correct"] & (rows["ecr"] <= 1e-12))).all()
    full = rows[rows["arm"] == "full"].set_index("probe_id")["predicted"]
    assert (rows["flip"] == (rows["predicted"] != rows["probe_id"].map(full))).all()
    assert not rows.loc[rows["arm"] == "full", "flip"].any()


def test_every_image_and_cell_set_is_stored_once(source: Source) -> None:
    packed = pack_cases(source, choose_cases(source, 40))
    assert len(packed["cases"]) == 40
    assert len(packed["images"]) == 20, "two probes of an image share its picture"
    assert len(packed["cells"]) == 1
    assert {len(case["panels"]) for case in packed["cases"]} == {8}


def test_masks_survive_packing(source: Source) -> None:
    case = choose_cases(source, 1)[0]
    packed = pack_cases(source, [case])
    panel = next(p for p in packed["cases"][0]["panels"] if p["arm"] == packed["cases"][0]["featured"])
    kept = np.unpackbits(np.frombuffer(base64.b64decode(panel["kept"]), np.uint8), count=len(grid_cells()))
    assert kept.mean() == pytest.approx(panel["keep"], abs=1e-5)
    assert panel["evidence_kept"] == 0
    assert panel["evidence_cells"] > 0
    cells = np.frombuffer(base64.b64decode(packed["cells"][0]), "<u2").reshape(-1, 4) / 65535
    assert np.allclose(cells, grid_cells(), atol=1e-5)


def test_the_hero_takes_its_image_out_of_the_data(source: Source) -> None:
    packed = pack_cases(source, choose_cases(source, 3))
    jpeg = packed["images"][0]["jpeg"]
    hero = make_hero(packed)
    assert packed["images"][0]["jpeg"] is None
    assert jpeg in str(hero.picture)
    assert hero.headline == "Unsupported: correct, but the evidence is gone."
    assert "0 of" in hero.words


def test_embedded_json_cannot_close_its_element(source: Source) -> None:
    text = str(embed_json(pack_cases(source, choose_cases(source, 40))))
    assert "</" not in text
    assert "<" not in text
    assert HOSTILE in {case["target"] for case in json.loads(text)["cases"]}
    assert json.loads(str(embed_json("\u2028&>"))) == "\u2028&>"


def test_touching_needs_an_area() -> None:
    cells = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    assert touching(cells, [[0.5, 0.1, 0.6, 0.2]]).tolist() == [False, True]
    assert touching(cells, []).tolist() == [False, False]


def test_previews_shrink_and_never_grow() -> None:
    sink = io.BytesIO()
    Image.effect_noise((1600, 800), 60).convert("RGB").save(sink, "JPEG", quality=95)
    data, width, height = small_jpeg(sink.getvalue(), "x")
    assert (width, height) == (LARGEST_SIDE, LARGEST_SIDE // 2)
    assert len(data) < len(sink.getvalue())
    tiny = io.BytesIO()
    Image.effect_noise((300, 200), 60).convert("RGB").save(tiny, "JPEG", quality=20)
    assert small_jpeg(tiny.getvalue(), "x")[0] == tiny.getvalue()
    with pytest.raises(SightlineError, match="preview of x"):
        small_jpeg(b"not a picture", "x")


def test_runs_over_the_same_probes_share_their_cases(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("full", "target:0.3"), shift=0.3)
    packed = pack_cases(read_source([run, other]), choose_cases(read_source([run, other]), 4))
    labels = [arm["label"] for arm in packed["arms"]]
    shown = [labels[panel["arm"]] for panel in packed["cases"][0]["panels"]]
    assert shown[:2] == ["run · full", "other · full"]
    assert len(shown) == 10


def test_methods_lead_over_controls_and_an_unknown_selector_is_taken_for_a_method() -> None:
    shown_later = ("full", "random", "grid", "center", "shuffled", "bottom", "evidence_only", "anti_evidence", "masks")
    assert not any(claims_coverage(None, name) for name in shown_later), "rows of the first release have no role"
    assert all(claims_coverage(None, name) for name in ("target", "visionzip", "somebody_elses_method"))
    assert claims_coverage("method", "somebody_elses_method")
    assert not any(claims_coverage(role, "target") for role in ("reference", "control", "oracle", "replay"))
