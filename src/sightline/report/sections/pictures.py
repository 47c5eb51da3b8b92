"""The gallery: the image as the pruned prefix holds it, all arms side by side."""

from __future__ import annotations

from sightline.report.gallery import BOTH, YES_OR_NO
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker


@SECTIONS.register("pictures")
class Pictures(SectionMaker):
    id = "pictures"
    title = "Pictures"
    order = 50
    lead = "The image as the pruned prefix holds it. Filters look at the chosen arm, or at all arms together."

    def fill(self, section: Section, context: Context) -> None:
        """Answers in words alone have a gallery of their own."""
        if not context.source.all_in_words:
            section.pictures, section.gallery = True, BOTH if context.source.in_words else YES_OR_NO
