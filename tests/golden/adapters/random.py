from __future__ import annotations

from typing import Any

import numpy as np

from sightline.selectors.controls import Random
from tests.golden.adapters.audit_rules import view_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    view = view_of(np.zeros((case.params["N"], 4)), key=case.params["salt"])
    return {"kept": Random(seed=case.params["seed"]).select(view, case.params["K"]).anchors}
