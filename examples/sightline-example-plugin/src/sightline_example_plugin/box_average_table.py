"""A table as a paper about ``box_average`` might print it: two lines on the embedded reader's kind of model."""

from __future__ import annotations

from sightline.paper import Block, Line, PaperTable
from sightline.paper.paper_table import difference, metric_heads
from sightline.paper.tables.shared import metrics_of

METRICS = ("keep", "accuracy", "pos_ecr")


class BoxAverageTable(PaperTable):
    number = "BOXES"
    title = "Averages around boxes"
    about = "Qwen on the confirmation set at t = 0. Nobody has published any of it: the published cells are empty."
    blocks = (
        Block(
            words=("Method",),
            columns=metric_heads(*METRICS),
            lines=(
                Line(("Full",), (None, None, None), "qwen", "confirmation", "full"),
                Line(("Box average (30%)",), (None, None, None), "qwen", "confirmation", "box_average:0.3"),
            ),
            measure=metrics_of(*METRICS),
        ),
    )
    claims = (
        difference(
            "Averaging answers about as well as Full.",
            model="qwen", probes="confirmation", arm="box_average:0.3", minus="full", metric="accuracy",
            expects="around",
        ),
    )  # fmt: skip
