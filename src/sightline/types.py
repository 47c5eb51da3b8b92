"""Where packages written for the first release look for the records of a method. New ones import from ``sightline``."""

from sightline.core.prefix import Encoded, Prefix, Prompt
from sightline.core.probe import Box, Label, Probe
from sightline.core.selection import (
    Budget,
    LayerSelector,
    LayerState,
    Parity,
    PositionPolicy,
    QuerySpan,
    Selection,
    Selector,
    TokenView,
)

__all__ = [
    "Box", "Budget", "Encoded", "Label", "LayerSelector", "LayerState", "Parity", "PositionPolicy", "Prefix", "Probe",
    "Prompt", "QuerySpan", "Selection", "Selector", "TokenView",
]  # fmt: skip
