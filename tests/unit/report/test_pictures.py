"""Which cases a report shows, how they are packed, and what is drawn over an image."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sightline.geometry.marks import BLACK, PALE, veil_of
from sightline.report.case_packing import LARGEST_SIDE, pack_cases, small_jpeg, touching
from sightline.report.cases import NEARLY_ALIKE, choose_cases, mark_rows, standing
from sightline.report.hero import DROPPED, MERGED, OUTSIDE, cell_path, make_hero, overlay
from sightline.report.page import embed_json
from sightline.rows.run import load_run
from sightline.rows.source import Source, read_source
from sightline.store.folder import RunFolder
from tests.refusals import Refused
from tests.runs.yes_no import HOSTILE, grid_cells, make_run

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def source(run: Path) -> Source:
    return read_source([run])


def row_of(source: Source, probe: str, arm: str) -> pd.Series[Any]:
    return source.frame[(source.frame["arm"] == arm) & (source.frame["probe_id"] == probe)].iloc[0]


def test_the_first_case_is_a_method_beside_a_control_that_answers_alike_without_evidence(
    source: Source, tmp_path: Path
) -> None:
    first = choose_cases(source, 5)[0]
    kept, gone = (row_of(source, first.probe_id, arm) for arm in (first.beside, first.featured))
    assert (kept["regime"], gone["regime"], gone["label"]) == ("box-free method", "box-free control", "yes")
    assert kept["correct"]
    assert gone["correct"]
    assert kept["anchor_ecr"] >= 0.5 > 1e-12 >= gone["ecr"]
    source = read_source([make_run(tmp_path / "run", images=60, arms=("full", "target:0.3", "random:0.3"))])
    first = choose_cases(source, 1)[0]
    left, right = (row_of(source, first.probe_id, arm)["margin"] for arm in (first.beside, first.featured))
    assert abs(left - right) <= NEARLY_ALIKE * min(left, right), "of several such pairs one with nearly equal margins"


def test_a_shuffled_arm_an_oracle_and_evidence_lost_to_a_crop_do_not_lead(tmp_path: Path) -> None:
    for *arms, featured in (
        ("target:0.3", "shuffled:0.3", "random:0.3", {"random:0.3"}),
        ("target:0.3", "shuffled:0.3", {"shuffled:0.3", "target:0.3"}),
        ("protected:0.3", "random:0.3", {"random:0.3"}),
    ):
        source = read_source([make_run(tmp_path / str(len(arms)) / arms[0], arms=("full", *arms))])
        (first,) = choose_cases(source, 1)
        assert first.featured in featured
    assert first.beside == "", "an oracle is never the story"

    def crop(row: dict[str, Any]) -> None:
        """What the processor cut away before pruning says nothing about the selector."""
        if row["image_id"] < "img0010":
            row["ecr"] = row["anchor_ecr"] = 0.0

    source = read_source([make_run(tmp_path / "run", edit_row=crop)])
    first = choose_cases(source, 3)[0]
    assert first.probe_id >= "img0010"
    gone = source.frame[(source.frame["label"] == "yes") & source.frame["correct"] & (source.frame["ecr"] == 0)]
    strongest = gone.sort_values("margin").iloc[-1]
    assert strongest["image_id"] < "img0010", "the largest margin is among the cropped ones"


def test_cases_are_bounded_unique_never_about_full_and_marked_by_definition(source: Source) -> None:
    cases = choose_cases(source, 12)
    assert len(cases) == 12
    assert len({case.probe_id for case in cases}) == 12
    assert "full" not in {case.featured for case in cases}
    assert len({case.featured for case in cases}) > 4, "arms take turns"
    assert choose_cases(source, 0) == []
    rows = mark_rows(source.runs[0])
    assert (rows["unsupported"] == ((rows["label"] == "yes") & rows["correct"] & (rows["ecr"] <= 1e-12))).all()
    full = rows[rows["arm"] == "full"].set_index("probe_id")["predicted"]
    assert (rows["flip"] == (rows["predicted"] != rows["probe_id"].map(full))).all()
    assert not rows.loc[rows["arm"] == "full", "flip"].any()


def test_every_image_and_cell_set_is_stored_once_whole_and_no_json_can_close_its_element(source: Source) -> None:
    packed = pack_cases(source, choose_cases(source, 40))
    assert len(packed["cases"]) == 40
    assert len(packed["images"]) == 20, "two probes of an image share its picture"
    assert len(packed["cells"]) == 1
    assert {len(case["panels"]) for case in packed["cases"]} == {8}
    text = str(embed_json(packed))
    assert "<" not in text
    assert HOSTILE in {case["target"] for case in json.loads(text)["cases"]}
    assert json.loads(str(embed_json("\u2028&>"))) == "\u2028&>"
    panel = next(p for p in packed["cases"][0]["panels"] if p["arm"] == packed["cases"][0]["featured"])
    kept = np.unpackbits(np.frombuffer(base64.b64decode(panel["kept"]), np.uint8), count=len(grid_cells()))
    assert kept.mean() == pytest.approx(panel["keep"], abs=1e-5)
    assert panel["evidence_cells"] > panel["evidence_kept"] == 0
    cells = np.frombuffer(base64.b64decode(packed["cells"][0]), "<u2").reshape(-1, 4) / 65535
    assert np.allclose(cells, grid_cells(), atol=1e-5)


def test_the_hero_takes_its_image_out_of_the_data_and_frames_the_evidence_without_covering_it(source: Source) -> None:
    packed = pack_cases(source, choose_cases(source, 3))
    jpeg = packed["images"][0]["jpeg"]
    hero = make_hero(packed)
    assert packed["images"][0]["jpeg"] is None
    assert str(hero.panels).count(jpeg) == 1, "the second picture uses the first one's image"
    assert hero.headline == "The same answer, with and without the evidence."
    assert "is unsupported" in hero.words
    one, two = hero.panels
    assert "0 of" in two.words
    assert 'href="#hero-image"' in hero.undimmed
    assert "mask" not in hero.undimmed
    for place, panel in enumerate(hero.panels):
        assert f'href="#hero-seen-{place}"' in panel.inset
        assert f'mask="url(#hero-seen-{place}-mask)"' in panel.picture
    image = packed["images"][0]
    size = [image["w"], image["h"]]
    x1, y1, x2, y2 = np.array(packed["cases"][0]["regions"][0]) * [*size, *size]
    for drawing, least in ((one.picture, 2.0), (hero.undimmed, 0.5)):
        root = ElementTree.fromstring(str(drawing))
        frames = [rect for rect in root.iter(f"{SVG}rect") if rect.get("stroke")]
        assert len(frames) == 2
        for frame in frames:
            left, top, width, height = (float(frame.get(key, "0")) for key in ("x", "y", "width", "height"))
            assert max(left - x1, top - y1, x2 - left - width, y2 - top - height) <= -least


def test_missing_texts_are_outlined_and_magnified_evidence_is_as_sharp_as_kept(source: Source, tmp_path: Path) -> None:
    packed = pack_cases(source, choose_cases(source, 1))
    texts = [[0.1, y, 0.9, y + 0.05] for y in np.arange(0.05, 0.95, 0.1).tolist()]
    packed["cases"][0] |= {"regions": texts, "marks": [0] * len(texts), "beside": None}
    for panel in packed["cases"][0]["panels"]:
        panel |= {"lost": texts[:2], "texts": len(texts)}
    hero = make_hero(packed)
    frames = [rect for rect in ElementTree.fromstring(str(hero.panels[0].picture)).iter(f"{SVG}rect") if rect.get("x")]
    outlines = [rect for rect in frames if rect.get("stroke-dasharray")]
    assert {rect.get("stroke") for rect in outlines} == {packed["lost"].colour}
    size = packed["images"][0]["h"]
    assert [float(rect.get("y", "")) for rect in outlines] == pytest.approx([text[1] * size for text in texts[:2]])
    assert (hero.undimmed, hero.panels[0].inset, hero.headline) == ("", "", "A page written down.")
    assert "2 of the page's 9 texts are not in it: they are outlined." in hero.words
    folder = make_run(tmp_path / "run", images=4, arms=("full", "target:0.3", "random:0.3"))
    records = load_run(folder).images.to_pylist()
    sharp = io.BytesIO()
    Image.effect_noise((480, 160), 60).convert("RGB").save(sharp, "JPEG")
    for record in records:
        record |= {"details": [sharp.getvalue()], "detail_boxes": [[0.25, 0.5, 0.5, 0.75]]}
    RunFolder(folder).images_file(0, "orig").unlink()  # records that are there stay
    RunFolder(folder).write_images(0, "orig", records)
    detailed = read_source([folder])
    packed = pack_cases(detailed, choose_cases(detailed, 2))
    jpeg = base64.b64encode(sharp.getvalue()).decode()
    assert packed["images"][0]["details"] == [{"box": [0.25, 0.5, 0.5, 0.75], "jpeg": jpeg}]
    width, height = packed["images"][0]["w"], packed["images"][0]["h"]
    assert f'x="{width / 4:g}" y="{height / 2:g}" width="{width / 4:g}" height="{height / 4:g}"' in str(
        make_hero(packed).panels[0].picture
    )
    assert pack_cases(source, choose_cases(source, 1))["images"][0]["details"] == [], "runs that kept none have none"


def test_previews_shrink_and_never_grow_and_touching_needs_an_area(refused: Refused) -> None:
    sink = io.BytesIO()
    Image.effect_noise((1600, 800), 60).convert("RGB").save(sink, "JPEG", quality=95)
    data, width, height = small_jpeg(sink.getvalue(), "x")
    assert (width, height) == (LARGEST_SIDE, LARGEST_SIDE // 2)
    assert len(data) < len(sink.getvalue())
    tiny = io.BytesIO()
    Image.effect_noise((300, 200), 60).convert("RGB").save(tiny, "JPEG", quality=20)
    assert small_jpeg(tiny.getvalue(), "x")[0] == tiny.getvalue()
    refused("preview of x", small_jpeg, b"not a picture", "x")
    cells = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    assert touching(cells, [[0.5, 0.1, 0.6, 0.2]]).tolist() == [False, True]
    assert touching(cells, []).tolist() == [False, False]


def test_runs_over_the_same_probes_share_their_cases_and_methods_lead_over_controls(run: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("full", "target:0.3"), shift=0.3)
    packed = pack_cases(read_source([run, other]), choose_cases(read_source([run, other]), 4))
    labels = [arm["label"] for arm in packed["arms"]]
    shown = [labels[panel["arm"]] for panel in packed["cases"][0]["panels"]]
    assert shown[:2] == ["run · full", "other · full"]
    assert len(shown) == 10
    ranked = (
        ("box-free method target", "detector-assisted protected", " somebody_elses_method"),
        ("box-free control random", "box-free control grid"),
        ("box-free control shuffled", "box-free control bottom"),
        ("oracle protected", "replay masks", "full full"),
    )
    for rank, arms in enumerate(ranked):
        for regime, _, selector in (arm.rpartition(" ") for arm in arms):
            assert standing(regime or None, selector) == rank, selector


def test_kept_cells_are_lit_merged_ones_between_dropped_ones_dimmed_on_any_page_and_the_crop_is_darkest() -> None:
    def shade(picture: Image.Image, x: int) -> float:
        return picture.getpixel((x, 5))[0] / 200  # type: ignore[index]

    halves = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])
    page = Image.new("RGB", (100, 60), (200, 200, 200))
    picture = overlay(page, halves, np.array([True, False]), [(0.6, 0.4, 0.9, 0.6)])
    assert shade(picture, 10) == 1.0
    assert abs(shade(picture, 55) - (1 - DROPPED)) < 0.02
    assert picture.getpixel((75, 22))[0] > picture.getpixel((75, 22))[2]  # type: ignore[index]
    assert page.getpixel((55, 5)) == (200, 200, 200), "the image itself stays"
    cells = np.array([[0, 0, 0.25, 1], [0.25, 0, 0.5, 1], [0.5, 0, 0.75, 1]])
    picture = overlay(page, cells, np.array([1, 0, 0]), [], lineage=np.array([1, 1, 0]))
    shades = [shade(picture, x) for x in (10, 35, 60, 90)]
    assert np.allclose(shades, [1.0, 1 - MERGED, 1 - DROPPED, 1 - OUTSIDE], atol=0.02)
    # A thumbnail cell over dropped tiles: the model still holds something of that place.
    picture = overlay(page, np.vstack([halves, [[0, 0, 1, 1]]]), np.array([False, False, True]), [])
    assert shade(picture, 10) == shade(picture, 90) == 1.0
    for grey, veil in ((18, PALE), (100, PALE), (120, BLACK), (240, BLACK)):
        page = Image.new("RGB", (100, 60), (grey,) * 3)
        assert veil_of(page) == veil
        picture = overlay(page, halves, np.array([True, False]), [])
        assert shade(picture, 10) == grey / 200, "what was kept stays as it is"
        assert abs(shade(picture, 10) - shade(picture, 90)) > 80 / 200


def test_paths_join_neighbours_and_only_neighbours() -> None:
    cells = np.array([[0, 0, 0.25, 0.5], [0.25, 0, 0.5, 0.5], [0.75, 0, 1, 0.5], [0, 0.5, 0.25, 1]])
    everything = np.ones(4, dtype=bool)
    assert cell_path(cells, everything, 100, 100) == "M0 0H50V50H0ZM75 0H100V50H75ZM0 50H25V100H0Z"
    assert cell_path(cells, everything, 100, 100, join=False).count("M") == 4
    assert cell_path(cells, ~everything, 100, 100) == ""
