"""The numbers of a cost card: one record per measured point, its ratios under equal conditions only."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sightline.cost.benchmarks.base import Benchmark, Result
from sightline.cost.reading import Line, is_full
from sightline.cost.spread import Summary

Full = dict[int, tuple[float, int | None]]
"""Batch size -> milliseconds and incremental memory of the full prefix."""


def records_of(benchmark: Benchmark[Any], results: Sequence[Result]) -> list[dict[str, Any]]:
    """One record per measured point, in the order measured."""
    records = []
    results = benchmark.pooled(results)
    for result in results:
        stock = stock_ms(benchmark, results, result)
        for record in _records(benchmark, result, full_ms(benchmark, results, result)):
            known = stock is not None and "ms" in record
            records.append({**record, **({"than_stock": stock / record["ms"]} if known else {})})
    return records


def stages_of(benchmark: Benchmark[Any], results: Sequence[Result]) -> list[dict[str, Summary]]:
    """Every timed stage of every point, in the order of the records; empty where memory ran out."""
    return [
        {stage: benchmark.summary.of(samples) for stage, samples in point["samples_ms"].items()}
        for result in benchmark.pooled(results)
        for point in result["points"]
    ]


def lines_of(benchmark: Benchmark[Any], results: Sequence[Result]) -> list[Line]:
    """The records with their bounds named as in every table, and three columns per further stage in milliseconds."""
    named = {"low_ms": "ms_low", "high_ms": "ms_high"}
    lines = []
    for record, stages in zip(records_of(benchmark, results), stages_of(benchmark, results), strict=True):
        line = {named.get(key, key): value for key, value in record.items() if key != "spread"}
        for stage, taken in stages.items():
            if stage != benchmark.main:
                bounds = {"": taken.centre, "_low": taken.low, "_high": taken.high}
                line |= {f"{stage}_ms{bound}": value for bound, value in bounds.items()}
        lines.append(line)
    return lines


def stock_ms(benchmark: Benchmark[Any], results: Sequence[Result], result: Result) -> float | None:
    """Milliseconds of the model's own forward for the same model, device, dtype, image and text.

    The one ratio that does mix kernels; it says what the execution itself gains, never what pruning does.
    """
    wanted = _conditions(benchmark, {**result, "kernels": None})
    for other in results:
        alike = _conditions(benchmark, {**other, "kernels": None}) == wanted
        if alike and other["kernels"]["execution"] == "stock":
            return benchmark.summary.of(other["points"][0]["samples_ms"][benchmark.main]).centre
    return None


def full_ms(benchmark: Benchmark[Any], results: Sequence[Result], result: Result) -> Full:
    """The full prefix under the same conditions.

    Same conditions: model, device, dtype, kernels, image, text, positions. So a ratio never mixes kernels.
    """
    known: Full = {}
    for other in results:
        if _conditions(benchmark, other) != _conditions(benchmark, result):
            continue
        for point in other["points"]:
            samples = point["samples_ms"].get(benchmark.main)
            if samples and is_full(point["arm"]):
                memory = (point["memory"] or {}).get("allocated_incremental")
                known[point["batch"]] = (benchmark.summary.of(samples).centre, memory)
    return known


def model_name(request: dict[str, Any]) -> str:
    return request["config"] or Path(request["checkpoint"]).name


def _conditions(benchmark: Benchmark[Any], result: Result) -> tuple[Any, ...]:
    request, machine = result["request"], result["machine"]
    return (
        request["config"], request["checkpoint"], machine["name"], result["dtype"], json.dumps(result["kernels"]),
        result["picture"], request["text_tokens"], result["positions"], benchmark.batching(request),
        (result.get("probes") or {}).get("digest"),
    )  # fmt: skip


def _records(benchmark: Benchmark[Any], result: Result, full: Full) -> Iterator[dict[str, Any]]:
    for point in result["points"]:
        record: dict[str, Any] = {
            "model": model_name(result["request"]),
            "execution": result["kernels"]["execution"],
            "arm": point["arm"],
            "batch": point["batch"],
            "batching": benchmark.batching(result["request"]),
            "visual_tokens": point["visual_tokens"],
            "kept_tokens": point["kept_tokens"],
            "length": point["length"],
            "device": result["machine"]["name"],
            "dtype": result["dtype"],
            "positions": result["positions"],
            "box_source": result["box_source"],
            "setup_s": sum(point["setup_ms"]) / 1e3,
            "out_of_memory": bool(point["extra"].get("out_of_memory")),
        }
        if (benchmark.counted or {benchmark.main}) <= set(point["flops"]):
            record["estimated_gflop"] = sum(point["flops"].values()) / 1e9
        samples = point["samples_ms"].get(benchmark.main)
        if samples:
            record |= _times(point, benchmark.summary.of(samples), benchmark.main, result["ceiling_tflops"])
            record |= _memory(point["memory"])
            record |= _ratios(record["ms"], point, full)
            record |= benchmark.figures(point, result)
        yield record


def _times(point: dict[str, Any], taken: Summary, stage: str, ceiling_tflops: float) -> dict[str, Any]:
    times: dict[str, Any] = {"ms": taken.centre, "low_ms": taken.low, "high_ms": taken.high, "samples": taken.count}
    times |= {"spread": taken.bounds, "samples_per_s": point["batch"] / taken.centre * 1e3}
    if stage in point["flops"]:
        times["tflops"] = point["flops"][stage] / taken.centre / 1e9
        times["of_ceiling"] = times["tflops"] / ceiling_tflops
    return times


def _memory(counted: dict[str, int] | None) -> dict[str, float]:
    """In GiB; nothing on a CPU, whose allocator keeps no count."""
    if counted is None:
        return {}
    return {
        "allocated_peak_gib": counted["allocated_peak"] / 2**30,
        "reserved_peak_gib": counted["reserved_peak"] / 2**30,
        "incremental_gib": counted["allocated_incremental"] / 2**30,
        "reserved_incremental_gib": counted["reserved_incremental"] / 2**30,
    }


def _ratios(ms: float, point: dict[str, Any], full: Full) -> dict[str, float]:
    """Against the full prefix of the same batch size, where one was measured."""
    if point["batch"] not in full:
        return {}
    reference, used = full[point["batch"]]
    ratios = {"speedup": reference / ms}
    if point["memory"] is not None and used:
        ratios["memory_saved"] = 1.0 - point["memory"]["allocated_incremental"] / used
    return ratios
