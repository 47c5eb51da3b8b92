"""Regions in a picture are told apart by what they are to the question, with and without colours."""

from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.geometry.marks import MARKS, UNTYPED, marks_of, overlay
from sightline.probes.regions import ROLES

EVERYTHING = np.array([[0.0, 0.0, 1.0, 1.0]])
REGIONS = [(0.2, 0.4, 0.4, 0.5), (0.6, 0.4, 0.8, 0.5)]


def drawn(roles: tuple[str, ...]) -> np.ndarray:
    image = Image.new("RGB", (320, 240), "white")
    return np.asarray(overlay(image, EVERYTHING, np.array([True]), REGIONS, roles=roles))


def test_every_role_that_a_probe_may_have_is_marked_by_a_letter_and_a_colour_of_its_own() -> None:
    assert set(MARKS) == set(ROLES)
    assert len({mark.letter for mark in MARKS.values()}) == len(MARKS)
    assert len({mark.colour for mark in MARKS.values()}) == len(MARKS)


def test_regions_of_which_nobody_said_what_they_are_have_no_letter() -> None:
    assert marks_of((), 2) == [UNTYPED, UNTYPED]
    assert marks_of(("side_note",), 1)[0].letter == "S"
    assert marks_of(("side_note",), 1)[0].words == "side note"


def test_a_picture_shows_roles_above_their_regions_and_nothing_there_without_them() -> None:
    plain, typed = drawn(()), drawn(("answer_value", "field_label"))
    above = np.s_[80:92, 60:90]
    assert (plain[above] == 255).all()
    assert (typed[above] != 255).any()
    assert (typed[96:120, 64:128] == plain[96:120, 64:128]).all(), "nothing covers the evidence itself"
    blue = (typed == (0x3B, 0x9E, 0xDE)).all(axis=2)
    assert blue[:, 180:270].any()
    assert not blue[:, :160].any()


def test_a_letter_without_room_above_stands_below_its_region() -> None:
    image = Image.new("RGB", (320, 240), "white")
    top = [(0.2, 0.0, 0.4, 0.1)]
    typed = np.asarray(overlay(image, EVERYTHING, np.array([True]), top, roles=("context",)))
    assert (typed[28:40, 60:76] != 255).any()
