"""A card: what was measured on which machine, as a file and in words."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.spread import FurtherTable, Line, Quantity, Summary, is_full
from sightline.errors import SightlineError
from sightline.places.listing import file_errors, read_text
from sightline.places.writing import is_replaced, write_whole

if TYPE_CHECKING:
    import pandas as pd


Full = dict[tuple[int, float], tuple[float, int | None]]
"""Batch size and rate of arrivals -> milliseconds and incremental memory of the full prefix."""


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
        if (benchmark.counted or {benchmark.main}) <= {stage for stage, count in point["flops"].items() if count}:
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
    if point["flops"].get(stage):
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
    if _load(point) not in full:
        return {}
    reference, used = full[_load(point)]
    ratios = {"speedup": reference / ms}
    if point["memory"] is not None and used:
        ratios["memory_saved"] = 1.0 - point["memory"]["allocated_incremental"] / used
    return ratios


def _load(point: dict[str, Any]) -> tuple[int, float]:
    return point["batch"], point["extra"].get("rate", 0.0)


def _image_words(result: Result) -> str:
    """The made-up image, or those of the probes that were measured instead."""
    probes = result.get("probes")
    if not probes:
        return f"{result['picture'][0]} x {result['picture'][1]} pixels"
    (least, most), file = probes["sizes"], probes["file"]
    sizes = f"{least[0]} x {least[1]}" + (f" to {most[0]} x {most[1]}" if most != least else "")
    return f"those of {probes['count']} probes of {file} ({probes['digest'][:19]}), {sizes} pixels"


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

    @cached_property
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
            with file_errors(f"cannot read cost card {path}"):
                content = json.loads(read_text(path), parse_constant=_refuse)
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

    @property
    def _pooled(self) -> Sequence[Result]:
        return self.benchmark.pooled(self.results)

    def records(self) -> list[dict[str, Any]]:
        """One record per measured point, in the order measured: the columns of ``frame``."""
        records = []
        for result in self._pooled:
            stock = self._stock_ms(result)
            for record in _records(self.benchmark, result, self._full_ms(result)):
                known = stock is not None and "ms" in record
                records.append({**record, **({"than_stock": stock / record["ms"]} if known else {})})
        return records

    def stages(self) -> list[dict[str, Summary]]:
        """Every timed stage of every point, in the order of ``records``; empty where memory ran out."""
        return [
            {stage: self.benchmark.summary.of(samples) for stage, samples in point["samples_ms"].items()}
            for _, point in self._points()
        ]

    def lines(self) -> list[Line]:
        """Records with their bounds named as in every table, and three columns per further stage in milliseconds: what
        a page makes its tables and sentences from."""
        named = {"low_ms": "ms_low", "high_ms": "ms_high"}
        lines = []
        for record, stages in zip(self.records(), self.stages(), strict=True):
            line = {named.get(key, key): value for key, value in record.items() if key != "spread"}
            for stage, taken in stages.items():
                if stage != self.benchmark.main:
                    bounds = {"": taken.centre, "_low": taken.low, "_high": taken.high}
                    line |= {f"{stage}_ms{bound}": value for bound, value in bounds.items()}
            lines.append(line)
        return lines

    def _stock_ms(self, result: Result) -> float | None:
        """Milliseconds of the model's own forward for the same model, device, dtype, image and text.

        The one ratio that does mix kernels; it says what the execution itself gains, never what pruning does.
        """
        wanted = _conditions(self.benchmark, {**result, "kernels": None})
        for other in self._pooled:
            alike = _conditions(self.benchmark, {**other, "kernels": None}) == wanted
            if alike and other["kernels"]["execution"] == "stock":
                return self.benchmark.summary.of(other["points"][0]["samples_ms"][self.benchmark.main]).centre
        return None

    def _full_ms(self, result: Result) -> Full:
        """The full prefix under the same conditions.

        Same conditions: model, device, dtype, kernels, image, text, positions. So a ratio never mixes kernels.
        """
        known: Full = {}
        for other in self._pooled:
            if _conditions(self.benchmark, other) != _conditions(self.benchmark, result):
                continue
            for point in other["points"]:
                samples = point["samples_ms"].get(self.benchmark.main)
                if samples and is_full(point["arm"]):
                    memory = (point["memory"] or {}).get("allocated_incremental")
                    known[_load(point)] = (self.benchmark.summary.of(samples).centre, memory)
        return known

    def _points(self) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Every point behind what names it in a table."""
        for result in self._pooled:
            for point in result["points"]:
                yield {"execution": result["kernels"]["execution"], "arm": point["arm"], "batch": point["batch"]}, point

    def further_tables(self) -> Sequence[FurtherTable]:
        """What the benchmark concludes from the lines, in tables of its own."""
        return self.benchmark.further_tables(self.lines())

    def frame(self) -> pd.DataFrame:
        """For the report's cost section."""
        import pandas as pd

        return pd.DataFrame(self.records())

    @property
    def inside_timer(self) -> dict[str, str]:
        """Stage -> what its time covers, in the order of the work."""
        return dict(self.results[0]["inside_timer"])

    def markdown(self) -> str:
        benchmark, records = self.benchmark, self.records()
        known = {key for record in records for key in record}
        shown = [
            quantity
            for quantity in benchmark.columns(self.results)
            if quantity.card and (quantity.key in known or not quantity.optional)
        ]
        lines = [f"# Cost card: {benchmark.title}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts()]
        lines += ["", "Inside the timer, by stage:", ""]
        lines += [f"- `{stage}`: {text}" for stage, text in self.inside_timer.items()]
        columns = [Quantity("execution"), Quantity("arm"), *shown]
        lines += ["", *_table(records, columns), ""]
        for table in self.further_tables():
            lines += [f"{table.title}. {table.caption}", "", *_table(table.lines, table.columns), ""]
        points = list(self._points())
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
        lines.append(f"Operations are estimated from shapes; times are measured. {benchmark.kept}")
        return "\n".join(lines) + "\n"

    def facts(self) -> list[tuple[str, str]]:
        """What was measured on what, as names and words."""
        results, first = self.results, self.results[0]
        machine, request, used = first["machine"], first["request"], first["kernels"]
        device = {
            "cuda": machine["name"],
            "cpu": f"CPU, {machine['name']}, {machine['threads']} threads; no GPU was used",
            "endpoint": f"endpoint {machine['name']}; what it runs on is not told",
        }[machine["device"]]
        rates = [result["ceiling_tflops"] for result in results]
        reached = f"{min(rates):.3g}..{max(rates):.3g}"
        side = first["ceiling"]["before"]["side"] if first["ceiling"] else 0
        clocks = [result["clocks"]["after"]["clocks.sm"] for result in results if result["clocks"]["after"]]
        allowed = [name.replace("_", "-") for name, on in used["scaled_dot_product"].items() if on]
        plain = "no fused kernel allowed" if machine["device"] == "cuda" else "on the CPU"
        own = "; the engine attends by Sightline's own kernels" if used.get("own_causal") else ""
        executions = dict.fromkeys(str(result["kernels"]["execution"]) for result in results)
        facts = [
            ("model", f"{model_name(request)} ({first['weights']} weights)"),
            ("device", device),
            ("dtype", first["dtype"]),
            ("kernels", f"attention {used['attention']}, {', '.join(allowed) + ' allowed' if allowed else plain}{own}"),
            ("execution", ", ".join(executions)),
            ("batch", self.benchmark.batch_words(results)),
            ("ceiling", f"{reached} TFLOP/s, a {side}-cubed matrix product in the same processes"),
            ("SM clock", f"{min(clocks):.0f}..{max(clocks):.0f} MHz after the samples" if clocks else "not available"),
            ("image", _image_words(first)),
            ("text tokens", "those of the questions" if first.get("probes") else str(request["text_tokens"])),
            ("positions", first["positions"]),
            ("box source", first["box_source"]),
            ("processes", f"{len(results)}, {max(len(r['request']['arms']) for r in results)} arm(s) each"),
            ("software", ", ".join(f"{name} {machine[name.lower()]}" for name in ("torch", "transformers", "Python"))),
        ]  # fmt: skip
        notes = dict.fromkeys(result["note"] for result in results if result["note"])
        untold = () if side else ("dtype", "kernels", "execution", "ceiling", "SM clock", "positions", "box source")
        return [fact for fact in facts if fact[0] not in untold] + [("note", note) for note in notes]


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a time")
