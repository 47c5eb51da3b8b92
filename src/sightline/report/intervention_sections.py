"""One section for each intervention, there only when the runs hold its rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sightline.report import controls, edited, validity
from sightline.report.sections import Section
from sightline.report.source import Source
from sightline.report.table import Table
from sightline.report.tables import interventions_table

Maker = Callable[[], Table | None]


def intervention_sections(source: Source, draws: int, seed: int) -> list[Section]:
    """Those sections that have a table, or a reason why a table that the rows ask for cannot be made."""
    makers: list[tuple[str, str, str, Sequence[Maker]]] = [
        (
            "validity",
            "Validity",
            "Does coverage go with what the model does, and with what it loses when the evidence goes?",
            [
                lambda: validity.association_table(source, draws),
                lambda: validity.construct_table(source, draws),
                lambda: validity.drop_strata_table(source, draws),
            ],
        ),
        (
            "deletion",
            "Deletion",
            "Tokens of the evidence taken out of the prefix and put back: does the answer follow?",
            [lambda: edited.deletion_table(source, draws), lambda: edited.logit_drop_table(source, draws)],
        ),
        (
            "occlusion",
            "Occlusion",
            "The evidence grayed in the image itself, against as large a box elsewhere.",
            [lambda: edited.occlusion_table(source, draws)],
        ),
        (
            "image-dependence",
            "Image dependence",
            "The same questions about a gray image or somebody else's: what was never read off the image?",
            [lambda: controls.image_dependence_table(source, draws)],
        ),
        (
            "text-edits",
            "Text edits",
            "Another word painted where the evidence stood: does the answer change with it?",
            [
                lambda: controls.text_replacement_table(source),
                lambda: controls.edit_region_table(source, draws),
            ],
        ),
        (
            "positions",
            "Positions",
            "The same tokens with renumbered and with original positions.",
            [lambda: edited.positions_table(source)],
        ),
        (
            "boxes",
            "Box sources",
            "What selectors that look at boxes do when nobody hands them the annotation.",
            [lambda: controls.box_source_table(source)],
        ),
        (
            "interventions",
            "All edits",
            "Every edited arm and every other view of the image, beside the plain arm.",
            [lambda: interventions_table(source, draws, seed)],
        ),
    ]
    found = []
    for name, title, lead, tables in makers:
        section = Section(name, title, lead)
        for make in tables:
            section.add(make)
        if section.tables or section.notes:
            found.append(section)
    return found
