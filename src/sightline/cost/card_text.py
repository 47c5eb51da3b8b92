"""A cost card in words: its conditions and its Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sightline.cost.benchmarks.base import Benchmark, Result
from sightline.cost.card_records import lines_of, model_name, records_of
from sightline.cost.presentation import Quantity


def card_markdown(benchmark: Benchmark[Any], results: Sequence[Result]) -> str:
    shown = [quantity for quantity in benchmark.columns(results) if quantity.card]
    lines = [f"# Cost card: {benchmark.title}", ""]
    lines += [f"- {name}: {value}" for name, value in card_facts(benchmark, results)]
    lines += ["", "Inside the timer, by stage:", ""]
    lines += [f"- `{stage}`: {text}" for stage, text in results[0]["inside_timer"].items()]
    columns = [Quantity("execution"), Quantity("arm"), *shown]
    lines += ["", *_table(records_of(benchmark, results), columns), ""]
    for table in benchmark.further_tables(lines_of(benchmark, results)):
        lines += [f"{table.title}. {table.caption}", "", *_table(table.lines, table.columns), ""]
    points = list(_points(benchmark.pooled(results)))
    stages = [
        {**line, **{stage: str(benchmark.summary.of(samples)) for stage, samples in point["samples_ms"].items()}}
        for line, point in points
        if point["samples_ms"]
    ]
    timed = {stage for _, point in points for stage in point["samples_ms"]}
    if not timed <= {quantity.key for quantity in shown}:  # else the table above has them all
        lines += [f"Stages: {benchmark.summary.heading}", "", *_table(stages, _all_columns(stages)), ""]
    profiles = [
        {**line, **_shares(point["extra"]["profile"]["kinds"])}
        for line, point in points
        if point["extra"].get("profile", {}).get("kinds")
    ]
    if profiles:
        lines += ["Where the time goes, from one profiled pass over everything inside the timer", ""]
        lines += [*_table(profiles, _all_columns(profiles)), ""]
    lines.append("Operations are estimated from shapes; times are measured. Every sample is in the JSON file.")
    return "\n".join(lines) + "\n"


def card_facts(benchmark: Benchmark[Any], results: Sequence[Result]) -> list[tuple[str, str]]:
    """What was measured on what, as names and words."""
    first = results[0]
    machine, request, used = first["machine"], first["request"], first["kernels"]
    device = machine["name"] if machine["device"] == "cuda" else f"CPU, {machine['name']}, {machine['threads']} threads"
    rates = sorted(result["ceiling_tflops"] for result in results)
    side = first["ceiling"]["before"]["side"]
    clocks = [result["clocks"]["after"]["clocks.sm"] for result in results if result["clocks"]["after"]]
    allowed = [name.replace("_", "-") for name, on in used["scaled_dot_product"].items() if on]
    plain = "no fused kernel allowed" if machine["device"] == "cuda" else "on the CPU"
    own = "; the engine attends by Sightline's own kernels" if used.get("own_causal") else ""
    executions = dict.fromkeys(str(result["kernels"]["execution"]) for result in results)
    facts = [
        ("model", f"{model_name(request)} ({first['weights']} weights)"),
        ("device", device + ("" if machine["device"] == "cuda" else "; no GPU was used")),
        ("dtype", first["dtype"]),
        ("kernels", f"attention {used['attention']}, {', '.join(allowed) + ' allowed' if allowed else plain}{own}"),
        ("execution", ", ".join(executions)),
        ("batch", benchmark.batch_words(results)),
        ("ceiling", f"{rates[0]:.3g}..{rates[-1]:.3g} TFLOP/s, a {side}-cubed matrix product in the same processes"),
        ("SM clock", f"{min(clocks):.0f}..{max(clocks):.0f} MHz after the samples" if clocks else "not available"),
        ("image", _image_words(first)),
        ("text tokens", "those of the questions" if first.get("probes") else str(request["text_tokens"])),
        ("positions", first["positions"]),
        ("box source", first["box_source"]),
        ("processes", f"{len(results)}, {max(len(r['request']['arms']) for r in results)} arm(s) each"),
        ("software", f"torch {machine['torch']}, transformers {machine['transformers']}, Python {machine['python']}"),
    ]  # fmt: skip
    notes = dict.fromkeys(result["note"] for result in results if result["note"])
    return facts + [("note", note) for note in notes]


def _image_words(result: Result) -> str:
    """The made-up image, or those of the probes that were measured instead."""
    probes = result.get("probes")
    if not probes:
        return f"{result['picture'][0]} x {result['picture'][1]} pixels"
    (least, most), file = probes["sizes"], probes["file"]
    sizes = f"{least[0]} x {least[1]}" + (f" to {most[0]} x {most[1]}" if most != least else "")
    return f"those of {probes['count']} probes of {file} ({probes['digest'][:19]}), {sizes} pixels"


def _points(results: Sequence[Result]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Every point behind what names it in a table."""
    for result in results:
        for point in result["points"]:
            yield {"execution": result["kernels"]["execution"], "arm": point["arm"], "batch": point["batch"]}, point


def _shares(kinds: dict[str, dict[str, float]]) -> dict[str, str]:
    total = sum(kind["ms"] for kind in kinds.values())
    return {name: f"{kind['ms']:.2f} ms ({kind['ms'] / total:.0%})" for name, kind in kinds.items()}


def _all_columns(lines: Sequence[dict[str, Any]]) -> list[Quantity]:
    return [Quantity(name) for name in dict.fromkeys(name for line in lines for name in line)]


def _table(lines: Sequence[Mapping[str, Any]], columns: Sequence[Quantity]) -> list[str]:
    table = ["| " + " | ".join(column.key for column in columns) + " |", "|" + " --- |" * len(columns)]
    return table + ["| " + " | ".join(_cell(column, line) for column in columns) + " |" for line in lines]


def _cell(column: Quantity, line: Mapping[str, Any]) -> str:
    value = line.get(column.key)
    if value is None:
        return "out of memory" if column.key == "ms" and line.get("out_of_memory") else ""
    if column.unit == "percent":
        return f"{value:.1%}"
    if column.unit == "ratio":
        return f"{value:.2f}x"
    if column.unit == "score":
        return f"{value:.3f}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
