"""A probe about another version of its image: what an image edit does before anything is encoded."""

from __future__ import annotations

from dataclasses import replace

from sightline.errors import SightlineError
from sightline.interventions.edits import BLANK, OCCLUDE, OCCLUDE_RANDOM, VIEW_OF
from sightline.interventions.occlusion import occlusion_views
from sightline.types import Probe


def seen_as(probe: Probe, view: str) -> Probe:
    """The probe with the view's boxes painted gray; ``orig`` changes nothing."""
    if view == "orig":
        return probe
    if probe.view != "orig":
        raise SightlineError(
            f"probe '{probe.id}' is already about the view '{probe.view}'; image interventions start from originals"
        )
    if view == VIEW_OF[BLANK]:
        return replace(probe, view=view, occlude=((0.0, 0.0, 1.0, 1.0),))
    hidden, elsewhere = occlusion_views(probe)
    changed = {VIEW_OF[OCCLUDE]: hidden, VIEW_OF[OCCLUDE_RANDOM]: elsewhere}[view]
    return replace(changed, extra=probe.extra)
