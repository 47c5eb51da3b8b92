"""What the paper's artifact calls a selector -> our name and the arguments that reproduce its masks exactly."""

from __future__ import annotations

from typing import Any

from sightline.errors import SightlineError

PREFIXES = (("target_embed_", "target"), ("embed_", "prompt"), ("", "overlap"))


def from_artifact(
    name: str,
    *,
    seed: int = 13,
    hybrid_core_ratio: float = 0.5,
    hybrid_context_ratio: float = 0.25,
    evidence_boost: float = 0.1,
    embedding_relevance_weight: float = 0.85,
    embedding_query_topk: int = 2,
    backbone: str = "",
) -> tuple[str, dict[str, Any]]:
    """The registered name and the arguments for one of the artifact's ``[target_]embed_X`` or bare ``X`` names.

    The keywords are the artifact's run settings under their own names and defaults. The prefix is the score source; a
    bare name scores by box overlap. ``backbone`` matters to ``rise`` and ``coverage_greedy`` with a bare name alone.
    """
    prefix, score = next((prefix, score) for prefix, score in PREFIXES if name.startswith(prefix))
    rule = name.removeprefix(prefix)
    scored = {"score": score, "weight": embedding_relevance_weight, "top": embedding_query_topk}
    mixture = {**scored, "core": hybrid_core_ratio, "context": hybrid_context_ratio}
    # Beside the overlap score only Qwen had a uniqueness; beside embedding scores all tiles were taken for one raster.
    beside_overlap = "evidence" if backbone.startswith("qwen") else "none"
    neighbours = {"neighbours": beside_overlap if score == "overlap" else "one_raster"}
    table: dict[str, tuple[str, dict[str, Any]]] = {
        "random": ("random", {"seed": seed, "salt": name}),
        "grid": ("grid", {"cells": "truncated"}),
        "center": ("center", {}),
        "topk": ("prompt" if score == "prompt" else "target", scored),
        "bottomk": ("bottom", scored),
        "shuffled_topk": ("shuffled", {**scored, "seed": seed}),
        "grid_topk": ("target_grid", {**scored, "reserve": hybrid_core_ratio, "cells": "truncated"}),
        "protected_topk": ("protected", {**scored, "reserve": hybrid_core_ratio}),
        "protected_center_topk": ("center_protected", scored),
        "soft_evidence_topk": ("soft_evidence", {**scored, "beta": evidence_boost}),
        "spatial_aware": ("spatial_aware", {**mixture, "rest": "farthest", "cells": "truncated"}),
        "hybrid": ("hybrid", mixture),
        "rel_hybrid": ("rel_hybrid", mixture),
        "soft_relboost": ("soft_relboost", mixture),
        "protected_rel_hybrid": ("protected_rel_hybrid", mixture),
        "rise": ("rise", {**scored, **neighbours}),
        "coverage_greedy": ("coverage_greedy", {**scored, **neighbours, "boost": max(0.5, evidence_boost)}),
    }
    if score == "overlap":
        table["topk"] = ("evidence_only", {"padding": "raster"})
        table["bottomk"] = ("anti_evidence", {"padding": "raster"})
    if rule not in table:
        raise SightlineError(f"'{name}' is not a selector of the artifact; its rules are {', '.join(table)}")
    return table[rule]
