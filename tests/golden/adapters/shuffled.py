from __future__ import annotations

from typing import Any

import numpy as np

from tests.golden.adapters.audit_rules import kept, view_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    view = view_of(np.zeros((case.params["N"], 4)), key=case.params["salt"])
    scores = case.inputs["scores_f64"]
    return {"kept": kept("shuffled_topk", scores, None, view, case.params["K"], seed=case.params["seed"])}
