"""Where the right word stands among the candidates, arm by arm."""

from __future__ import annotations

from sightline.core.table import Table, TableColumn
from sightline.report.sections import Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.statistics.metrics import METRICS

SHOWN = ("reciprocal_rank", "accuracy")


class RankedWords(SectionMaker):
    id = "ranked_words"
    title = "Ranked words"
    order = 65
    lead = "Does the right word still come first when the prefix is pruned?"

    def fill(self, section: Section, context: Context) -> None:
        if context.summary.arms["reciprocal_rank"].notna().any():
            section.add(lambda: ranks_table(context.summary))


def ranks_table(summary: ReportSummary) -> Table:
    """One line per arm whose rows hold ranks."""
    ranked = summary.arms[summary.arms["reciprocal_rank"].notna()]
    metrics = [METRICS[name] for name in SHOWN]
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("n_probes", "Probes", "count"),
        *(TableColumn(each.name, each.label, "score", interval=True, help=each.help) for each in metrics),
    ]
    caption = "MRR is the mean of 1 / rank of the word that stands in the image; accuracy is how often it is first."
    return Table("ranked_words", "Rank of the right word", caption, columns, ranked)
