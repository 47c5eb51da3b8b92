"""A card: what was measured on which machine, as a file and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.spread import FurtherTable, Line, Quantity, Summary, is_full
from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.places.writing import is_replaced, write_whole

if TYPE_CHECKING:
    import pandas as pd


# The numbers of a cost card: one record per measured point, its ratios under equal conditions only.

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


# A cost card in words: its conditions and its Markdown.


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
    from sightline.core.table import TableColumn, markdown_rows

    told = [TableColumn(column.key, column.key, column.unit) for column in columns]
    return markdown_rows(told, ([_cell(column, line) for column in columns] for line in lines))


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


# The cost card: what was measured, on what, with what inside the timer; as JSON, Markdown and a data frame.

FORMAT = 1


@dataclass(frozen=True)
class CostCard:
    """Results of one command: one per process that was started."""

    results: list[Result]

    def __post_init__(self) -> None:
        if not self.results:
            raise SightlineError("a cost card needs at least one measurement")

    @property
    def kind(self) -> str:
        return str(self.results[0]["request"]["kind"])

    @property
    def benchmark(self) -> Benchmark[Any]:
        return BENCHMARKS.get(self.kind)()

    def write(self, path: Path) -> None:
        """``path`` gets the JSON with every sample; the Markdown goes beside it."""
        content = json.dumps({"format": FORMAT, "results": self.results}, indent=1)
        write_whole(path, content.encode(), make_parent=True)
        if is_replaced(path):  # nothing lies beside a pipe
            write_whole(path.with_suffix(".md"), self.markdown().encode())

    @staticmethod
    def read(path: Path) -> CostCard:
        try:
            content = json.loads(read_text(path), parse_constant=_refuse)
        except OSError as error:
            raise SightlineError(f"cannot read cost card {path}: {error.strerror or error}") from None
        except (ValueError, RecursionError) as error:
            raise SightlineError(f"cannot read cost card {path}: {error}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            *others, last = BENCHMARKS
            raise SightlineError(
                f"{path} is not a cost card of format {FORMAT}; make one with sightline bench {', '.join(others)} "
                f"or {last}"
            )
        try:
            card = CostCard(content["results"])
            if card.kind not in BENCHMARKS:
                raise SightlineError(f"{path} was measured by '{card.kind}', a benchmark that is not installed here")
            card.markdown()  # Reads every field that anything is made from.
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SightlineError(f"{path} is not a whole cost card ({what}); measure again") from None
        if len({result["request"]["kind"] for result in card.results}) > 1:
            raise SightlineError(f"{path} mixes kinds of measurements; give each kind a card of its own")
        return card

    def records(self) -> list[dict[str, Any]]:
        """One record per measured point: the columns of ``frame``."""
        return records_of(self.benchmark, self.results)

    def stages(self) -> list[dict[str, Summary]]:
        """Every timed stage of every point, in the order of ``records``; empty where memory ran out."""
        return stages_of(self.benchmark, self.results)

    def lines(self) -> list[Line]:
        """Records and stages in one: what a page makes its tables and sentences from."""
        return lines_of(self.benchmark, self.results)

    def further_tables(self) -> Sequence[FurtherTable]:
        """What the benchmark concludes from the lines, in tables of its own."""
        return self.benchmark.further_tables(self.lines())

    def frame(self) -> pd.DataFrame:
        """For the report's cost section."""
        import pandas as pd

        return pd.DataFrame(self.records())

    def facts(self) -> list[tuple[str, str]]:
        """What was measured on what, as names and words."""
        return card_facts(self.benchmark, self.results)

    @property
    def inside_timer(self) -> dict[str, str]:
        """Stage -> what its time covers, in the order of the work."""
        return dict(self.results[0]["inside_timer"])

    def markdown(self) -> str:
        return card_markdown(self.benchmark, self.results)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a time")
