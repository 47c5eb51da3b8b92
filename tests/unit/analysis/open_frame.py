"""Rows of open questions without a model: scores that depend on how much of the evidence an arm kept."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd

ARMS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "full": ("full", "reference", "1.0", {}),
    "target:0.3": ("target", "method", "0.3", {"score": "target", "top": 2}),
    "target:0.7": ("target", "method", "0.7", {"score": "target", "top": 2}),
    "target:0.3:score=focus": ("target", "method", "0.3", {"score": "focus", "top": 2}),
    "target:0.3:score=question": ("target", "method", "0.3", {"score": "question", "top": 2}),
    "random:0.3": ("random", "control", "0.3", {"seed": 17}),
    "grid:0.3": ("grid", "control", "0.3", {}),
    "grid:0.7": ("grid", "control", "0.7", {}),
    "evidence_only:0.3": ("evidence_only", "oracle", "0.3", {}),
}
"""arm -> selector, role, budget, arguments."""
TASKS = {"textvqa": 30, "docvqa": 12}
"""How many questions each has; two to an image."""


def open_frame(seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    parts = []
    for arm, (selector, role, budget, arguments) in ARMS.items():
        for task, n in TASKS.items():
            worst = np.ones(n) if arm == "full" else rng.random(n)
            score = np.clip(np.round(0.2 + 0.8 * worst + rng.normal(0.0, 0.2, n), 1), 0.0, 1.0)
            parts.append(
                pd.DataFrame(
                    {
                        "model": "m", "arm": arm, "plain_arm": arm, "selector": selector, "role": role,
                        "arguments": json.dumps(arguments), "budget": budget, "keep": float(budget),
                        "keep_requested": float(budget), "intervention": "none", "view": "orig", "task": task,
                        "probe_id": [f"{task}:{i}" for i in range(n)],
                        "image_id": [f"{task}-{i // 2}" for i in range(n)],
                        "label": "no", "predicted": "no", "correct": score >= 0.5, "score": score,
                        "worst_region": worst, "ecr": np.sqrt(worst), "n_regions": 2,
                    }
                )
            )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def probes() -> list[dict[str, Any]]:
    """Questions as ``run.probes`` has them: every third long, every fourth with a number for an answer."""
    found = []
    for task, n in TASKS.items():
        for i in range(n):
            question = "What stands on the sign?" if i % 3 else "Which of all the many words stands on the blue sign?"
            found.append({"id": f"{task}:{i}", "question": question, "answers": ["exit" if i % 4 else "14.50"]})
    return found
