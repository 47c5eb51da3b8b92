"""The gallery of answers in words: Full's, each arm's and the accepted ones, over what was kept of the image."""

from __future__ import annotations

from sightline.report.gallery import IN_WORDS
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker


@SECTIONS.register("answers")
class AnswersSideBySide(SectionMaker):
    id = "answers"
    title = "Answers side by side"
    order = 48
    lead = (
        "The image as the pruned prefix holds it, with what was said about it. Right answers without a cell of their "
        "evidence come first, then wrong ones the model was sure of, then answers other than Full's."
    )

    def fill(self, section: Section, context: Context) -> None:
        """For reports about nothing else; where questions are answered yes or no too, Pictures has all cases."""
        if context.source.all_in_words:
            section.pictures, section.gallery = True, IN_WORDS
