"""What pruning costs and saves as measured apart, where cost cards were given."""

from __future__ import annotations

from sightline.report.measured_cost import realised_cost_section
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker


@SECTIONS.register("realised-cost")
class RealisedCost(SectionMaker):
    id = "realised-cost"
    title = "Realised cost"
    order = 90

    def make(self, context: Context) -> Section | None:
        return realised_cost_section(context.cards, beside_runs=True) if context.cards else None
