"""Pages on which one word is replaced by its decoy: drawing, screening, and the questions that are asked of them."""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from sightline.controls import text_replacement as made_up
from sightline.controls.text_replacement import DARK, LABELS, LIGHT, Replaced, Screened, font_files
from sightline.core.probe import Box, Label, Probe
from tests.conftest import REPOSITORY
from tests.refusals import Refused
from tests.warm_python import run_python

SIZE = (400, 240)
PLACE = (120, 90, 280, 130)
REGION: Box = (PLACE[0] / SIZE[0], PLACE[1] / SIZE[1], PLACE[2] / SIZE[0], PLACE[3] / SIZE[1])


def page(text: str = "TOTAL", ground: int = 250, ink: int = 10) -> Image.Image:
    image = Image.new("RGB", SIZE, (ground,) * 3)
    ImageDraw.Draw(image).text((130, 92), text, fill=(ink,) * 3, font=ImageFont.load_default(32))
    return image


def pair(source: str = "TOTAL", target: str = "TOTAI", image: str = "page.png") -> tuple[Probe, Probe]:
    def probe(label: Label, text: str) -> Probe:
        return Probe(f"{image}:{label}", image, image, f"Is there {text}?", label, text, source, (REGION,))

    return probe("yes", source), probe("no", target)


def made(source: str = "TOTAL", target: str = "TOTAI") -> Replaced:
    found = made_up.replaced(*pair(source, target), page(source), font_files())
    assert isinstance(found, Replaced)
    return found


def test_only_the_box_changes_and_erasing_leaves_the_ground(monkeypatch: pytest.MonkeyPatch) -> None:
    before = np.asarray(page())
    outside = np.ones(before.shape[:2], dtype=bool)
    outside[PLACE[1] : PLACE[3], PLACE[0] : PLACE[2]] = False
    for version, image in made().versions.items():
        changed = np.asarray(image) != before
        assert not changed[outside].any(), version
        assert changed[~outside].any(), version
    assert np.asarray(page().crop(PLACE)).min() == 10
    assert np.asarray(made_up.erased(page(), PLACE).crop(PLACE)).min() >= 240, "ink is left"
    monkeypatch.setitem(sys.modules, "cv2", None)
    assert (np.asarray(made_up.erased(page(), PLACE).crop(PLACE)) == 250).all()


def test_ink_position_and_pixels() -> None:
    assert made_up.ink_colour(page(ground=250), PLACE) == DARK
    assert made_up.ink_colour(page(ground=20, ink=240), PLACE) == LIGHT
    assert [made_up.single_edit("TOTAL", target) for target in ("TOTAI", "TOTA", "T0TAI")] == [4, None, None]
    assert made_up.outer_pixels((0.1001, 0.1001, 0.1999, 0.1999), 100, 100) == (10, 10, 20, 20), "outwards"
    assert made_up.padded((0, 0, 20, 10), (30, 100)) == (0, 0, 30, 18), "inside the image"


def test_both_words_fit_in_one_font_at_one_size_that_has_their_glyphs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    lettering = made_up.common_lettering(("WWWWWW", "i"), PLACE, font_files())
    assert lettering is not None
    font = ImageFont.truetype(str(lettering.file), lettering.size, layout_engine=ImageFont.Layout.BASIC)
    left, top, right, bottom = font.getbbox("WWWWWW")
    assert right - left <= PLACE[2] - PLACE[0] - 2
    assert bottom - top <= PLACE[3] - PLACE[1] - 2
    for text in ("x" * 200, "Ωmega"):
        assert made_up.common_lettering((text,), PLACE, font_files()) is None
    assert made_up.can_draw(font_files()[0], "Total 42!")
    assert not made_up.can_draw(font_files()[0], "漢字"), "not as a box"
    refused("holds none of DejaVuSans.ttf", font_files, tmp_path)
    (own := tmp_path / "DejaVuSerif.ttf").touch()
    assert font_files(tmp_path) == [own]
    monkeypatch.setattr(made_up, "SHIPPED", tmp_path)
    refused("no shipped font", font_files)


@pytest.mark.parametrize(
    ("source", "target"), [("TOTAL", "TOTAI"), ("80an", "B0an"), ("Mmill", "Mnill"), ("a.b,c", "a.b;c")]
)
def test_the_glyph_box_holds_exactly_what_the_two_drawings_differ_in(source: str, target: str) -> None:
    """Letters of equal width around the change: every pixel that differs lies in the box of the substituted glyph."""
    files = [file for file in font_files() if file.name.startswith("mono")]
    image = Image.new("RGB", SIZE, "white")
    lettering = made_up.common_lettering((source, target), PLACE, files)
    index = made_up.single_edit(source, target)
    assert lettering is not None
    assert index is not None
    drawn = (made_up.lettered(image, text, PLACE, lettering, DARK) for text in (source, target))
    first, second = (np.asarray(each).astype(int) for each in drawn)
    rows, columns = np.nonzero(np.abs(first - second).max(axis=2) > 8)
    box = made_up.glyph_box(target, index, PLACE, lettering, SIZE)
    pad = 2  # the old glyph may be a little wider than the new one
    assert columns.min() >= box[0] * SIZE[0] - pad
    assert columns.max() < box[2] * SIZE[0] + pad
    assert (box[2] - box[0]) * SIZE[0] < (PLACE[2] - PLACE[0]) / 2
    assert box[1] * SIZE[1] >= PLACE[1] - 1
    assert len(rows)


def test_questions_and_labels_of_every_version() -> None:
    probes = {probe.kind: probe for probe in made_up.version_probes(made(), ".png")}
    assert {kind: probe.label for kind, probe in probes.items()} == {
        "original_source": "yes", "original_target": "no", "replacement_source": "no", "replacement_target": "yes",
        "sham_source": "yes", "sham_target": "no", "erase_source": "no", "erase_target": "no",
    }  # fmt: skip
    assert probes["sham_target"].question == "Is there TOTAI?"
    assert len({probe.image for probe in probes.values()}) == len(LABELS)
    glyph = made_up.edit_region_probe(made())
    assert glyph is not None
    assert (glyph.label, glyph.target_text) == ("yes", "TOTAI")
    assert glyph.regions[0] != REGION
    assert made_up.edit_region_probe(made("TOTAL", "T0TAI")) is None


def test_unusable_images_are_counted_by_reason(tmp_path: Path, refused: Refused) -> None:
    page().save(tmp_path / "page.png")
    page().save(tmp_path / "other.png")
    small = [replace(p, regions=((0.1, 0.1, 0.12, 0.12),)) for p in pair(image="other.png")]
    skipped: Counter[str] = Counter()
    found = made_up.replacements([*pair(), *small, pair(image="alone.png")[0]], tmp_path, skipped=skipped)
    assert [one.image_id for one in found] == ["page.png"]
    assert skipped == {"no pair": 1, "too small a box": 1}
    double = [replace(p, regions=(REGION, REGION)) for p in pair()]
    refuse = made_up.replacements
    refused("no image allows a text replacement: 1 too small a box", refuse, small, tmp_path)
    refused("1 with words of unequal length", refuse, pair("TOTAL", "TOTA"), tmp_path, equal_length=True)
    refused("1 without a letter or digit", refuse, pair("Ωβ", "Ωγ"), tmp_path)
    refused("1 without exactly one", refuse, double, tmp_path)


def test_an_engine_reads_the_versions_as_intended() -> None:
    """In a process of its own, which grows by almost a gigabyte."""
    script = (
        "from sightline.controls.text_replacement import Screen, folded\n"
        "from tests.unit.controls.test_text_replacement import made\n"
        "screen = Screen('rapidocr')\n"
        "passed = screen(made('TOTAL', 'TOTEM'))\n"
        "(result,) = screen.results\n"
        "print(passed, [folded(result.readings[name]) for name in ('replacement', 'sham', 'erase')])\n"
    )
    done = run_python(["-c", script], cwd=REPOSITORY)
    assert done.stdout == "True ['totem', 'total', '']\n", done.stderr


def test_screening_rules() -> None:
    for replacement, sham, erase, passed in (
        ("totem!", "To-tal", "", True),
        ("total", "total", "", False),
        ("totem total", "total", "", False),
        ("totem", "totem", "", False),
        ("totem", "total", "total", False),
    ):
        readings = {"replacement": replacement, "sham": sham, "erase": erase}
        assert Screened("i", "TOTAL", "TOTEM", readings).passed is passed, readings


def test_a_version_is_whole_or_absent_under_a_name_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page().save(tmp_path / "page.png")

    def stop(number: int) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as stopped:
        stopped.setattr("os.fsync", stop)
        with pytest.raises(KeyboardInterrupt):
            made_up.save_versions([made()], tmp_path, tmp_path / "out")
    assert not list((tmp_path / "out").glob("[!.]*"))
    made_up.save_versions([made()], tmp_path, tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*-*.png"))) == len(LABELS)
    ids = ["a/b", "a_b", "a:b", "x" * 300, "x" * 301, "ü" * 200]
    files = {made_up.version_file(image_id, "sham") for image_id in ids}
    assert len(files) == len(ids)
    assert max(len(file.encode()) for file in files) < 255
    assert made_up.version_file("a_b", "sham") == "a_b-sham.png", "what is a file name stays as it is"
