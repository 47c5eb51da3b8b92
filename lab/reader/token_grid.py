"""The 28 x 28 squares of 16 px in which training says where characters stand, whatever a form makes of them."""

from __future__ import annotations

from lab.scenes.compose import CANVAS

UNIT = 16
UNITS_PER_SIDE = CANVAS // UNIT
UNITS = UNITS_PER_SIDE**2
SLOT_WIDTH, SLOT_HEIGHT = 4, 8
SLOTS = (UNIT // SLOT_WIDTH) * (UNIT // SLOT_HEIGHT)
"""Cells of 4 x 8 pixels within a unit; each is asked which character has its centre there."""


def token_order(side: int) -> list[int]:
    """Place of each unit, in reading order, when units are ordered by visual token, ``side`` tokens to a side.

    Within a token its units are in reading order; where a token is one unit this is 0, 1, 2, ...
    """
    within = UNITS_PER_SIDE // side
    return [
        (row // within * side + column // within) * within**2 + row % within * within + column % within
        for row in range(UNITS_PER_SIDE)
        for column in range(UNITS_PER_SIDE)
    ]
