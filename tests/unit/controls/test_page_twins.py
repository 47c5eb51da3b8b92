"""Twins of pages: other words at the same places, in the same size and colour; labels that questions name stay."""

import re

import numpy as np
import pytest
from PIL import Image, ImageDraw

from sightline.controls.page_twins import ink_of, repaint, twin_page, twin_probes
from sightline.controls.text_replacement import font_files, load_font
from sightline.core.probe import TWIN, Box, Probe

TEXTS: list[tuple[str, Box]] = [
    ("Total", (0.1, 0.1, 0.3, 0.2)),
    ("RM 8.87", (0.5, 0.1, 0.8, 0.2)),
    ("Cash", (0.1, 0.3, 0.3, 0.4)),
    ("8.87", (0.5, 0.3, 0.7, 0.4)),
    ("Kedai BUKU-Baru", (0.1, 0.5, 0.7, 0.6)),
    ("---", (0.1, 0.7, 0.7, 0.8)),
    ("Total: $8.87", (0.1, 0.85, 0.7, 0.9)),
]


def shape(text: str) -> str:
    return re.sub("[A-Z]", "A", re.sub("[a-z]", "a", re.sub("[0-9]", "0", text)))


def test_the_twin_has_other_words_of_the_same_form() -> None:
    new, _ = twin_page(TEXTS, "page-1", kept=["total"])
    assert (new[0], new[5]) == ("Total", "---")
    for (old, _), text in list(zip(TEXTS, new, strict=True))[1:5]:
        assert old != text
        assert shape(old) == shape(text)
    assert new[1].endswith(new[3]), "the same amount stays the same amount wherever it stands"
    assert new[6] == f"Total: ${new[3]}", "a label is kept and an amount is one within a longer text too"
    assert new == twin_page(TEXTS, "page-1", kept=["Total"])[0] != twin_page(TEXTS, "page-2", kept=["total"])[0]


def test_questions_stay_and_answers_are_those_of_the_twin() -> None:
    new, renaming = twin_page(TEXTS, "page-1", kept=["Total"])
    page = {"page": [[text, *box] for text, box in TEXTS]}
    asked = Probe(
        "p-total", "p.png", "p", 'What is the text right of "Total"?', "open", "Total", "RM 8.87", (TEXTS[1][1],),
        answers=("RM 8.87",), decoy="3.10", extra=page,
    )  # fmt: skip
    shown = Probe("p-yes", "p.png", "p", 'Is "Cash" there?', "yes", "Cash", "Cash", (TEXTS[2][1],), extra=page)
    one, other = twin_probes([asked, shown], {"p": "p.twin.png"}, {"p": renaming})
    assert (one.view, one.image, one.question, one.target_text) == (TWIN, "p.twin.png", asked.question, "Total")
    assert one.answers == (new[1],)
    assert one.decoy != "3.10"
    assert one.extra["page"][1][0] == new[1]
    assert other.question == f'Is "{new[2]}" there?'
    assert other.target_text == other.source_text == new[2]


@pytest.mark.parametrize(("ink", "paper"), [((30, 20, 90), (250, 240, 230)), ((240, 240, 200), (20, 30, 25))])
def test_new_texts_look_like_the_old(ink: tuple[int, int, int], paper: tuple[int, int, int]) -> None:
    page = Image.new("RGB", (400, 200), paper)
    font = load_font(font_files()[0], 24)
    ImageDraw.Draw(page).text((40, 50), "Amount 12.50", font=font, fill=ink)
    left, top, right, bottom = ImageDraw.Draw(page).textbbox((40, 50), "Amount 12.50", font=font)
    box = ((left - 4) / 400, (top - 4) / 200, (right + 4) / 400, (bottom + 4) / 200)
    twin = repaint(page, [("Amount 12.50", "Erofup 37.81", box)])
    around = (int(left) - 4, int(top) - 4, int(right) + 4, int(bottom) + 4)
    old, new = (ink_of(image.crop(around)) for image in (page, twin))
    assert np.abs(np.subtract(old[0], new[0])).max() <= 40, "colour"
    assert np.abs(np.subtract(old[2], new[2])).max() <= 4, "extent, but for thin edges of letters"
    changed = np.asarray(page) != np.asarray(twin)
    assert changed.any()
    changed[around[1] : around[3], around[0] : around[2]] = False
    assert not changed.any()
