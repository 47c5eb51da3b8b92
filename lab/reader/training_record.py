"""The record of a training run beside its checkpoint: legs, curves, checks; continued where a reader was trained on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError

TRAINING = "training.json"

Record = dict[str, Any]


def read_record(folder: Path) -> Record:
    """``training.json`` of a checkpoint folder."""
    path = folder / TRAINING
    try:
        return json.loads(path.read_text(encoding="utf-8"))  # type: ignore[no-any-return]
    except (OSError, ValueError) as problem:
        raise SightlineError(f"cannot read {path} ({problem}); python -m lab export writes it") from None


def continued(before: Record, after: Record) -> Record:
    """One record of both: the legs, curves and checks of ``before`` first, steps counted on from its last."""
    done = before["history"]["steps"]
    legs = [*before["history"]["legs"], *after["history"]["legs"]]
    history = after["history"] | {"legs": legs, "steps": done + after["history"]["steps"]}
    later = {
        name: [entry | {"step": done + entry["step"]} for entry in after.get(name, [])] for name in ("curves", "checks")
    }
    return after | {"history": history} | {name: [*before.get(name, []), *later[name]] for name in later}
