"""From a number to its rows: the query that a cell of the main table, or a point of the frontier, opens."""

from __future__ import annotations

import json

from sightline.statistics.metrics.unsupported import ZERO_COVERAGE

POSITIVE = 'label == "yes"'
YES_OR_NO: dict[str, tuple[str, str, bool]] = {
    "accuracy": ("not correct", "margin", False),
    "hfpr": ('label == "no" and predicted == "yes"', "margin", True),
    "auroc": ("", "margin", False),
    "pos_ecr": (POSITIVE, "ecr", False),
    "relative_pos_ecr": (f"{POSITIVE} and visible > 0", "ecr", False),
    "anchor_ecr": (POSITIVE, "anchor_ecr", False),
    "neg_src": ('label == "no"', "ecr", True),
    "unsupported": (f"{POSITIVE} and correct and ecr <= {ZERO_COVERAGE}", "margin", True),
    "unsupported_by_pruning": (f"{POSITIVE} and correct and visible > 0 and ecr <= {ZERO_COVERAGE}", "margin", True),
}
IN_WORDS: dict[str, tuple[str, str, bool]] = {
    "accuracy": ("not correct", "score", False),
    "score": ("", "score", False),
    "exact": ("not correct", "score", False),
    "pos_ecr": ("", "ecr", False),
    "relative_pos_ecr": ("visible > 0", "ecr", False),
    "anchor_ecr": ("", "anchor_ecr", False),
    "unsupported": (f"correct and ecr <= {ZERO_COVERAGE}", "score", True),
    "unsupported_by_pruning": (f"correct and visible > 0 and ecr <= {ZERO_COVERAGE}", "score", True),
}


def behind(metric: str, arm: str, in_words: bool) -> dict[str, str]:
    """Query, column and direction: the rows that a metric of an arm is about, those that lower it first."""
    said, sort, down = (IN_WORDS if in_words else YES_OR_NO).get(metric, ("", "", False))
    own = f"arm == {json.dumps(arm, ensure_ascii=False)}"
    return {"query": f"{own} and {said}" if said else own, "sort": sort, "down": "1" if down else ""}
