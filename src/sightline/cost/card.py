"""The cost card: what was measured, on what, with what inside the timer; as JSON, Markdown and a data frame."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

FORMAT = 1
MAIN = {"prefill": "prefill", "ttft": "total", "sweep": "engine"}
"""The stage that ratios are taken of."""
COUNTED = {"prefill": {"prefill"}, "ttft": {"vision", "prefill"}, "sweep": {"engine"}}
"""Stages whose operations are estimated; without all of them there is no estimate for the whole."""


@dataclass(frozen=True)
class Summary:
    """Median and spread of all samples of a stage, in milliseconds."""

    median: float
    low: float
    """10th percentile, nearest rank."""
    high: float
    """90th percentile, nearest rank."""
    count: int

    @staticmethod
    def of(samples: Sequence[float]) -> Summary:
        ordered = sorted(samples)
        last = len(ordered) - 1
        return Summary(statistics.median(ordered), ordered[round(0.1 * last)], ordered[round(0.9 * last)], len(ordered))

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}..{self.high:.2f})"


@dataclass(frozen=True)
class CostCard:
    """Results of one command: one per process that was started."""

    results: list[dict[str, Any]]

    def __post_init__(self) -> None:
        if not self.results:
            raise SightlineError("a cost card needs at least one measurement")

    @property
    def kind(self) -> str:
        return str(self.results[0]["request"]["kind"])

    def write(self, path: Path) -> None:
        """``path`` gets the JSON with every sample; the Markdown goes beside it."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"format": FORMAT, "results": self.results}, indent=1), encoding="utf-8")
        path.with_suffix(".md").write_text(self.markdown(), encoding="utf-8")

    @staticmethod
    def read(path: Path) -> CostCard:
        try:
            content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        except OSError as error:
            raise SightlineError(f"cannot read cost card {path}: {error.strerror or error}") from None
        except ValueError as error:
            raise SightlineError(f"cannot read cost card {path}: {error}") from None
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise SightlineError(
                f"{path} is not a cost card of format {FORMAT}; make one with sightline bench prefill, ttft or sweep"
            )
        try:
            card = CostCard(content["results"])
            card.markdown()  # Reads every field that anything is made from.
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise SightlineError(f"{path} is not a whole cost card ({what}); measure again") from None
        if len({result["request"]["kind"] for result in card.results}) > 1:
            raise SightlineError(f"{path} mixes kinds of measurements; give each kind a card of its own")
        return card

    # ------------------------------------------------------------------ numbers

    def records(self) -> list[dict[str, Any]]:
        """One record per measured point: the columns of ``frame``."""
        records = []
        for result in self.results:
            stock = self.stock_ms(result)
            for record in _records(result, self.full_ms(result)):
                known = stock is not None and "ms" in record
                records.append({**record, **({"than_stock": stock / record["ms"]} if known else {})})
        return records

    def stages(self) -> list[dict[str, Summary]]:
        """Every timed stage of every point, in the order of ``records``; empty where memory ran out."""
        return [
            {stage: Summary.of(samples) for stage, samples in point["samples_ms"].items()}
            for result in self.results
            for point in result["points"]
        ]

    def stock_ms(self, result: dict[str, Any]) -> float | None:
        """Median milliseconds of the model's own forward for the same model, device, dtype, picture and text.

        The one ratio that does mix kernels; it says what the execution itself gains, never what pruning does.
        """
        for other in self.results:
            alike = _conditions({**other, "kernels": None}) == _conditions({**result, "kernels": None})
            if alike and other["kernels"]["execution"] == "stock":
                return float(statistics.median(other["points"][0]["samples_ms"]["total"]))
        return None

    def full_ms(self, result: dict[str, Any]) -> dict[int, tuple[float, int | None]]:
        """Batch size -> median milliseconds and incremental memory of the full prefix under the same conditions.

        Same conditions: model, device, dtype, kernels, picture, text, positions. So a ratio never mixes kernels.
        """
        known: dict[int, tuple[float, int | None]] = {}
        for other in self.results:
            if _conditions(other) != _conditions(result):
                continue
            for point in other["points"]:
                samples = point["samples_ms"].get(MAIN[self.kind])
                if samples and point["arm"].split(":")[0] == "full":
                    memory = (point["memory"] or {}).get("allocated_incremental")
                    known[point["batch"]] = (statistics.median(samples), memory)
        return known

    def frame(self) -> pd.DataFrame:
        """For the report's cost section."""
        import pandas as pd

        return pd.DataFrame(self.records())

    # ------------------------------------------------------------------ text

    def facts(self) -> list[tuple[str, str]]:
        """What was measured on what, as names and words."""
        return _facts(self.results)

    @property
    def inside_timer(self) -> dict[str, str]:
        """Stage -> what its time covers, in the order of the work."""
        return dict(self.results[0]["inside_timer"])

    def markdown(self) -> str:
        lines = [f"# Cost card: {TITLES[self.kind]}", ""]
        lines += [f"- {name}: {value}" for name, value in self.facts()]
        lines += ["", "Inside the timer, by stage:", ""]
        lines += [f"- `{stage}`: {text}" for stage, text in self.inside_timer.items()]
        lines += ["", *_table(self.records(), COLUMNS[self.kind]), ""]
        stages = _stage_rows(self.results)
        lines += ["Stages: median milliseconds (10th..90th percentile) over all samples", "", *_table(stages, None), ""]
        profiles = _profile_rows(self.results)
        if profiles:
            lines += [
                "Where the time goes, from one profiled pass over everything inside the timer",
                "",
                *_table(profiles, None),
                "",
            ]
        lines.append("Operations are estimated from shapes; times are measured. Every sample is in the JSON file.")
        return "\n".join(lines) + "\n"


TITLES = {
    "prefill": "language layers over a batch of prefixes",
    "ttft": "picture to first token",
    "sweep": "audit sweep against one sample at a time",
}
COLUMNS = {
    "prefill": [
        "execution", "arm", "batch", "length", "ms", "spread", "samples_per_s", "tflops", "of_ceiling", "speedup",
        "allocated_peak_gib", "incremental_gib", "memory_saved", "setup_s",
    ],
    "ttft": [
        "execution", "arm", "kept_tokens", "length", "ms", "spread", "speedup", "than_stock", "allocated_peak_gib",
        "incremental_gib", "setup_s",
    ],
    "sweep": [
        "execution", "arm", "rows", "ms", "rows_per_s", "one_sample_rows_per_s", "throughput_ratio",
        "ratio_to_model_alone", "of_ceiling", "setup_s",
    ],
}  # fmt: skip
SWEEP_RATES = ("one_sample_rows_per_s", "throughput_ratio", "ratio_to_model_alone")


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not a time")


def _conditions(result: dict[str, Any]) -> tuple[Any, ...]:
    request, machine = result["request"], result["machine"]
    return (
        request["config"], request["checkpoint"], machine["name"], result["dtype"], json.dumps(result["kernels"]),
        result["picture"], request["text_tokens"], result["positions"], request["grow"],
    )  # fmt: skip


def _records(result: dict[str, Any], full: dict[int, tuple[float, int | None]]) -> Iterable[dict[str, Any]]:
    kind = result["request"]["kind"]
    stage = MAIN[kind]
    for point in result["points"]:
        record: dict[str, Any] = {
            "model": result["request"]["config"] or Path(result["request"]["checkpoint"]).name,
            "execution": result["kernels"]["execution"],
            "arm": point["arm"],
            "batch": point["batch"],
            "batching": "growing" if result["request"]["grow"] else "fixed",
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
        if COUNTED[kind] <= set(point["flops"]):
            record["estimated_gflop"] = sum(point["flops"].values()) / 1e9
        samples = point["samples_ms"].get(stage)
        if not samples:
            yield record
            continue
        summary = Summary.of(samples)
        record |= {"ms": summary.median, "low_ms": summary.low, "high_ms": summary.high, "samples": summary.count}
        record["spread"] = f"{summary.low:.2f}..{summary.high:.2f}"
        record["samples_per_s"] = point["batch"] / summary.median * 1e3
        if stage in point["flops"]:
            record["tflops"] = point["flops"][stage] / summary.median / 1e9
            record["of_ceiling"] = record["tflops"] / result["ceiling_tflops"]
        memory = point["memory"]
        if memory is not None:
            record["allocated_peak_gib"] = memory["allocated_peak"] / 2**30
            record["reserved_peak_gib"] = memory["reserved_peak"] / 2**30
            record["incremental_gib"] = memory["allocated_incremental"] / 2**30
            record["reserved_incremental_gib"] = memory["reserved_incremental"] / 2**30
        if point["batch"] in full and kind != "sweep":
            reference, used = full[point["batch"]]
            record["speedup"] = reference / summary.median
            if memory is not None and used:
                record["memory_saved"] = 1.0 - memory["allocated_incremental"] / used
        if kind == "sweep":
            extra = point["extra"]
            record |= {"rows": extra["rows"], "rows_per_s": extra["engine_rows_per_s"]}
            record |= {name: extra[name] for name in SWEEP_RATES if name in extra}
        yield record


def _facts(results: list[dict[str, Any]]) -> list[tuple[str, str]]:
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
        ("model", f"{request['config'] or Path(request['checkpoint']).name} ({first['weights']} weights)"),
        ("device", device + ("" if machine["device"] == "cuda" else "; no GPU was used")),
        ("dtype", first["dtype"]),
        ("kernels", f"attention {used['attention']}, {', '.join(allowed) + ' allowed' if allowed else plain}{own}"),
        ("execution", ", ".join(executions)),
        ("batch", _batch_words(results)),
        ("ceiling", f"{rates[0]:.3g}..{rates[-1]:.3g} TFLOP/s, a {side}-cubed matrix product in the same processes"),
        ("SM clock", f"{min(clocks):.0f}..{max(clocks):.0f} MHz after the samples" if clocks else "not available"),
        ("picture", f"{first['picture'][0]} x {first['picture'][1]} pixels"),
        ("text tokens", str(request["text_tokens"])),
        ("positions", first["positions"]),
        ("box source", first["box_source"]),
        ("processes", f"{len(results)}, {max(len(r['request']['arms']) for r in results)} arm(s) each"),
        ("software", f"torch {machine['torch']}, transformers {machine['transformers']}, Python {machine['python']}"),
    ]  # fmt: skip
    notes = dict.fromkeys(result["note"] for result in results if result["note"])
    return facts + [("note", note) for note in notes]


def _batch_words(results: list[dict[str, Any]]) -> str:
    """Batch sizes; of a sweep, which batches by tokens, what bounds them."""
    request = results[0]["request"]
    if request["kind"] == "sweep":
        return (
            f"{request['images']} images with {request['probes']} probes each; up to {request['batch_images']} images "
            f"and {request['batch_tokens']} tokens at a time"
        )
    fixed, grown = (
        sorted({p["batch"] for r in results if bool(r["request"]["grow"]) is grow for p in r["points"]})
        for grow in (False, True)
    )
    words = [", ".join(map(str, fixed))] if fixed else []
    return "; ".join(words + ([f"growing in one process: {', '.join(map(str, grown))}"] if grown else []))


def _stage_rows(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "execution": result["kernels"]["execution"],
            "arm": point["arm"],
            "batch": point["batch"],
            **{stage: str(Summary.of(samples)) for stage, samples in point["samples_ms"].items()},
        }
        for result in results
        for point in result["points"]
        if point["samples_ms"]
    ]


def _profile_rows(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for result in results:
        for point in result["points"]:
            kinds = point["extra"].get("profile", {}).get("kinds", {})
            total = sum(kind["ms"] for kind in kinds.values())
            shares = {name: f"{kind['ms']:.2f} ms ({kind['ms'] / total:.0%})" for name, kind in kinds.items()}
            if kinds:
                mode = result["kernels"]["execution"]
                rows.append({"execution": mode, "arm": point["arm"], "batch": point["batch"], **shares})
    return rows


def _table(records: list[dict[str, Any]], columns: list[str] | None) -> list[str]:
    names = columns or list(dict.fromkeys(name for record in records for name in record))
    lines = ["| " + " | ".join(names) + " |", "|" + " --- |" * len(names)]
    return lines + ["| " + " | ".join(_cell(name, record) for name in names) + " |" for record in records]


def _cell(name: str, record: dict[str, Any]) -> str:
    value = record.get(name)
    if value is None:
        return "out of memory" if name == "ms" and record.get("out_of_memory") else ""
    if name in ("of_ceiling", "memory_saved"):
        return f"{value:.1%}"
    if name in ("speedup", "than_stock", "throughput_ratio", "ratio_to_model_alone"):
        return f"{value:.2f}x"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
