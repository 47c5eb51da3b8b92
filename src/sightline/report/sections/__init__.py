"""The sections of a report, one file each. A file registers itself; nothing else lists it."""

from sightline.report.sections.base import (
    SECTIONS,
    ChartGroup,
    Context,
    Part,
    Section,
    SectionMaker,
    columns_read,
    make_section,
    make_sections,
)

__all__ = [
    "SECTIONS",
    "ChartGroup",
    "Context",
    "Part",
    "Section",
    "SectionMaker",
    "columns_read",
    "make_section",
    "make_sections",
]
