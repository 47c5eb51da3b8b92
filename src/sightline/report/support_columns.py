"""Columns of tables that compare target support on two sides."""

from __future__ import annotations

from sightline.report.table import TableColumn

SUPPORT = (
    "Target support is the margin on positives and its negative on negatives: larger is always nearer to the right "
    "answer. Differences are left minus right, paired by probe."
)


def support_columns() -> list[TableColumn]:
    return [
        TableColumn("support_diff", "Overall", "signed", interval=True, help="Difference in target support."),
        TableColumn(
            "pos_support_diff", "Positives", "signed", interval=True, help="Difference in target support, yes."
        ),
        TableColumn("neg_support_diff", "Negatives", "signed", interval=True, help="Difference in target support, no."),
        TableColumn(
            "share_left_larger", "Left larger", "percent", help="Probes on which the left side has more support."
        ),
        TableColumn("only_left_correct", "L right", "count", help="Probes that only the left side answers right."),
        TableColumn("only_right_correct", "R right", "count", help="Probes that only the right side answers right."),
        TableColumn("only_left_false_alarm", "L alarm", "count", help="Negatives that only the left calls yes."),
        TableColumn("only_right_false_alarm", "R alarm", "count", help="Negatives that only the right calls yes."),
    ]
