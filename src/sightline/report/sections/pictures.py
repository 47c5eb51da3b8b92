"""The gallery: the image as the pruned prefix holds it, all arms side by side."""

from __future__ import annotations

from sightline.report.sections.base import BOTH, IN_WORDS, SECTIONS, YES_OR_NO, Context, Section, SectionMaker


@SECTIONS.register("pictures")
class Pictures(SectionMaker):
    id = "pictures"
    title = "Pictures"
    order = 19
    lead = "The image as the pruned prefix holds it. Filters look at the chosen arm, or at all arms together."

    def fill(self, section: Section, context: Context) -> None:
        """Answers in words alone have a gallery of their own."""
        if not context.source.all_in_words:
            section.pictures, section.gallery = True, BOTH if context.source.in_words else YES_OR_NO


@SECTIONS.register("answers")
class AnswersSideBySide(SectionMaker):
    id = "answers"
    title = "Answers side by side"
    order = 18
    lead = (
        "The image as the pruned prefix holds it, with what was said about it. Right answers without a cell of their "
        "evidence come first, then wrong ones the model was sure of, then answers other than Full's."
    )

    def fill(self, section: Section, context: Context) -> None:
        """For reports about nothing else; where questions are answered yes or no too, Pictures has all cases."""
        if context.source.all_in_words:
            section.pictures, section.gallery = True, IN_WORDS
