"""The table of a cost card: its numbers, the columns that its benchmark names, and the sentence that they allow."""

from __future__ import annotations

import pandas as pd

from sightline.cost.cost_card import CostCard
from sightline.cost.reading import CONDITIONS
from sightline.report.table import Table, TableColumn, format_value

LONG = 12
"""Lines above which the page shows one execution at a time."""


def card_frame(card: CostCard) -> pd.DataFrame:
    """The card's lines: its frame with bounds named as in every table, and three columns per stage in milliseconds."""
    return pd.DataFrame(card.lines())


def varying(frame: pd.DataFrame) -> list[str]:
    """The conditions in which lines of the card differ."""
    return [name for name in CONDITIONS if frame[name].nunique() > 1]


def cost_table(card: CostCard, name: str, frame: pd.DataFrame) -> Table:
    """``frame`` is the card's ``card_frame``; its columns that are not printed are in the CSV all the same."""
    benchmark = card.benchmark
    frame = frame.assign(remark=["out of memory" if gone else "" for gone in frame["out_of_memory"]])
    apart = [name for name in varying(frame) if name != "execution"]
    titles = {"box_source": "Boxes", "batching": "Batching"}
    first = [
        TableColumn("arm", "Arm"),
        TableColumn("execution", "Execution"),
        *(TableColumn(name, titles.get(name, name.capitalize())) for name in apart),
    ]
    shown = [
        TableColumn(quantity.key, quantity.title, quantity.unit, quantity.interval, quantity.help)
        for quantity in benchmark.columns(card.results)
        if quantity.page
    ]
    columns = first + [
        column
        for column in (*shown, TableColumn("remark", "Remark"))
        if column.key in frame and (column.key == "ms" or frame[column.key].replace("", None).notna().any())
    ]
    return Table(
        name,
        f"Realised cost: {benchmark.title}",
        benchmark.caption + " Operations are estimated from shapes and stand beside the times; they are no times.",
        columns,
        frame,
        reading=benchmark.reading(frame.to_dict("records"), format_value),
        filter="execution" if len(frame) > LONG and frame["execution"].nunique() > 1 else "",
        unprinted=tuple(str(key) for key in frame.columns if key != "remark"),
    )


def further_tables(card: CostCard, name: str) -> list[Table]:
    """What the card's benchmark concludes from its lines."""
    return [
        Table(
            f"{name}_{table.name}",
            table.title,
            table.caption,
            [
                TableColumn(
                    quantity.key, quantity.title or quantity.key.capitalize(), quantity.unit, help=quantity.help
                )
                for quantity in table.columns
                if quantity.page
            ],
            pd.DataFrame(list(table.lines)),
        )
        for table in card.further_tables()
    ]
