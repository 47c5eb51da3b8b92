"""Under which terms an arm chose its tokens: what may be ranked with what.

A method that was shown where the evidence is cannot lose it. Beside methods that had to find it, it is a diagnostic and
no competitor, so every row says which of the two its arm is.
"""

from __future__ import annotations

from typing import Literal

from sightline.core.selection import Role

Regime = Literal["full", "box-free method", "box-free control", "detector-assisted", "oracle", "replay"]
"""``full``: nothing is pruned. ``box-free``: image and prompt alone. ``detector-assisted``: boxes that a text detector
found in the image, as an application could. ``oracle``: annotated boxes, or damaged copies of them. ``replay``: masks
from a file, which does not say what they were chosen by."""
NO_BOXES = "none"
"""The box source of an arm that reads no boxes."""


def arm_regime(role: Role, reads_boxes: bool | None, detected: bool) -> Regime:
    """The regime of an arm, from what its method says about itself and whether the run's boxes were ``detected``.

    A method that does not say whether it reads boxes is taken to read them: too modest a claim misleads nobody. Boxes
    decide before the role does, so a control that looks at annotated boxes is an oracle too; an oracle that reads
    none knows something else that no deployed method could.
    """
    if role == "replay":
        return "replay"
    if role == "reference":
        return "full"
    if reads_boxes is not False:
        return "detector-assisted" if detected else "oracle"
    if role == "oracle":
        return "oracle"
    return "box-free control" if role == "control" else "box-free method"
