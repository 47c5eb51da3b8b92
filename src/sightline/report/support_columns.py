"""Columns of tables that compare target support on two sides."""

from __future__ import annotations

from sightline.report.table import TableColumn

SUPPORT = (
    "Target support is the margin on positives and its negative on negatives: larger is always nearer to the right "
    "answer. Differences are first minus second, paired by probe."
)


def support_columns() -> list[TableColumn]:
    return [
        TableColumn("support_diff", "Overall", "signed", interval=True, help="Difference in target support."),
        TableColumn(
            "pos_support_diff", "Positives", "signed", interval=True, help="Difference in target support, yes."
        ),
        TableColumn("neg_support_diff", "Negatives", "signed", interval=True, help="Difference in target support, no."),
        TableColumn(
            "share_left_larger", "First larger", "percent", help="Probes on which the first side has more support."
        ),
        _count("only_left_correct", "Only first correct", "Probes that only the first side answers right."),
        _count("only_right_correct", "Only second correct", "Probes that only the second side answers right."),
        _count("only_left_false_alarm", "Only first false alarm", "Negatives that only the first side calls yes."),
        _count("only_right_false_alarm", "Only second false alarm", "Negatives that only the second side calls yes."),
    ]


def _count(key: str, title: str, meaning: str) -> TableColumn:
    return TableColumn(key, title, "count", help=meaning)
