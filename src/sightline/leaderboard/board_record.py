"""A leaderboard as JSON: everything that its page and its Markdown are made from, and a digest that ignores times."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from sightline import __version__
from sightline.errors import SightlineError
from sightline.leaderboard.contest import Contest, MeasuredModel
from sightline.leaderboard.over_models import overview
from sightline.leaderboard.standings import Standings, standings
from sightline.report.source import read_source
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS, Metric, metrics_shown_in
from sightline.statistics.readable_answers import nothing_to_read

FORM = 1
UNDIGESTED = frozenset({"selection_ms", "device", "version", "digest"})
"""Keys whose values differ between machines and moments although nothing else does."""
Record = dict[str, Any]


def record_of(contest: Contest, measured: Sequence[MeasuredModel], *, rank_by: str, draws: int, seed: int) -> Record:
    """What the runs say, ready to be written."""
    source = read_source([one.run.path for one in measured], [one.name for one in measured], pairs=True)
    by = ranking_metric(rank_by, in_words=source.all_in_words)
    metrics = [metric for metric in metrics_shown_in("leaderboard") if metric.answers != "words" or source.in_words]
    found: dict[str, Standings] = {}
    models = []
    for one, audited in zip(measured, source.runs, strict=True):
        rows = audited.frame.assign(arm=audited.frame["arm_name"])
        found[one.name] = standings(rows, one.lineup.entries, by, metrics, draws=draws, seed=seed)
        nothing = nothing_to_read(rows, draws=draws, seed=seed) if by.reads_answers else ""
        if nothing:
            found[one.name] = found[one.name].unranked()
        models.append(_model(one, found[one.name], nothing))
    probes = source.runs[0].frame.drop_duplicates("probe_id")
    record = {
        "sightline_leaderboard": FORM,
        "version": __version__,
        "ranked_by": by.name,
        "metrics": [metric.name for metric in dict.fromkeys([by, *metrics])],
        "budgets": list(contest.budgets),
        "pages": int(probes["image_id"].nunique()),
        "probes": len(probes),
        "probe_digest": str(measured[0].run.manifest["probe_digest"]),
        "draws": draws,
        "seed": seed,
        "notes": [*contest.notes, *source.notes, *(f"broken: {reason}" for reason in SELECTORS.broken().values())],
        "models": models,
        "overview": overview(found),
    }
    return {**record, "digest": digest_of(record)}


def ranking_metric(name: str, *, in_words: bool) -> Metric:
    """The metric that ranks: the one named, else the answers themselves."""
    metric = METRICS.get(name or ("score" if in_words else "accuracy"))
    if metric.better == "neither":
        raise SightlineError(f"--rank-by {metric.name}: neither more nor less of it is better, so it ranks nobody")
    return metric


def _model(one: MeasuredModel, found: Standings, nothing: str) -> Record:
    """``nothing`` says why ranks by its answers would mean nothing; "" where they mean something."""
    manifest = one.run.manifest
    return {
        "name": one.name,
        **{key: str(manifest.get(key)) for key in ("model_type", "weight_digest", "dtype", "positions", "box_source")},
        "device": str(manifest.get("device")),
        "notes": [nothing] if nothing else [],
        **({"ranked": False} if nothing else {}),
        "full": found.full,
        "standings": {budget: list(lines) for budget, lines in found.by_budget.items()},
        "refused": [
            {"method": refusal.method, "budget": refusal.budget, "reason": refusal.reason}
            for refusal in one.lineup.refusals
        ],
    }


def digest_of(record: Record) -> str:
    """SHA-256 of the record without times, device and version: the same runs give the same one anywhere."""
    plain = json.dumps(_digested(record), ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return f"sha256:{sha256(plain.encode()).hexdigest()}"


def _digested(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _digested(inner) for key, inner in value.items() if key not in UNDIGESTED}
    return [_digested(inner) for inner in value] if isinstance(value, list) else value


def record_text(record: Record) -> str:
    """JSON with one entry a line, so that the difference between two leaderboards can be read."""
    return _spread(record) + "\n"


def _spread(value: Any, depth: int = 0) -> str:
    inner = list(value.values()) if isinstance(value, dict) else value
    holds_more = isinstance(value, dict | list) and any(isinstance(item, dict | list) and item for item in inner)
    if not holds_more or (isinstance(value, dict) and "method" in value):
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    names = [f"{json.dumps(key)}: " for key in value] if isinstance(value, dict) else [""] * len(value)
    lines = ",\n".join(
        f"{' ' * (depth + 1)}{name}{_spread(item, depth + 1)}" for name, item in zip(names, inner, strict=True)
    )
    left, right = "{}" if isinstance(value, dict) else "[]"
    return f"{left}\n{lines}\n{' ' * depth}{right}"


def read_record(path: Path) -> Record:
    """A leaderboard as it was written, whose digest must be that of its content."""
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("sightline_leaderboard") != FORM or record.get("digest") != digest_of(record):
        raise SightlineError(f"{path} is no leaderboard, or was changed by hand; make it anew")
    return record
