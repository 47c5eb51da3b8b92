"""``sightline bench``: measures Sightline's own parts."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import Field

from sightline.commands.options import Commands, Written, flag_parameter, flag_parameters, with_options, with_parameters
from sightline.core.flags import OUTPUT, Flag, mark_of, options_of
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark
from sightline.cost.request import Request, positive_numbers, words_of
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.cost.selection import Timing


# ``sightline bench NAME`` for every registered benchmark: its command is made from the options that it declares.

COMMON = "Options that all benchmarks have"


def command_of(benchmark: Benchmark[Any]) -> Callable[..., None]:
    """A function with the benchmark's options as parameters, for typer to read."""

    def command(**given: Any) -> None:
        share_process = bool(given.pop("share_process", benchmark.together))
        out: Path | None = given.pop("out")
        _measure(list(requests_of(benchmark, given)), share_process, out)

    command.__doc__ = benchmark.description
    return with_parameters(command, list(_parameters(benchmark)))


def _parameters(benchmark: Benchmark[Any]) -> Iterator[inspect.Parameter]:
    """What the benchmark's request asks for, its own options before those that all have, and what the command asks."""
    common, declared = options_of(Request), options_of(benchmark.request)
    yield from flag_parameters(benchmark.request, [name for name in declared if name not in common])
    arms = f"Arms to measure. Without it: {', '.join(benchmark.arms)}."
    yield _common("arm", list[str] | None, None, arms)
    executions = f"Comma-separated: {', '.join(benchmark.executions)}."
    yield _common("execution", str, ",".join(benchmark.usual_executions), executions)
    yield _common("random_weights", bool, False, "Needed with --shape: weights do not affect speed.")
    yield from flag_parameters(benchmark.request, [name for name in common if name in declared], panel=COMMON)
    if not benchmark.together:
        yield _common("share_process", bool, False, "All arms in one process: quicker, less clean.")
    card = Annotated[Path | None, Written(".json")]
    yield _common("out", card, None, "Cost card: JSON here, Markdown beside it.")


def _common(name: str, kind: Any, default: Any, sentence: str) -> inspect.Parameter:
    return flag_parameter(name, Annotated[kind, Flag(COMMON)], default, sentence)


def requests_of(benchmark: Benchmark[Any], given: dict[str, Any]) -> Iterator[Request]:
    """A request per execution and per value of every option that takes several."""
    config, checkpoint = given["config"], given["checkpoint"]
    if bool(config) == bool(checkpoint):
        raise SightlineError("name what to measure: --shape NAME --random-weights, or --model CHECKPOINT")
    if config and not given["random_weights"]:
        raise SightlineError(f"--shape {config} has no weights of its own: add --random-weights, or use --model")
    readers = {name: mark_of(field).read for name, field in options_of(benchmark.request).items()}
    plain = {name: given[name] for name, read in readers.items() if read is None}
    written = [read(given[name]) for name, read in readers.items() if read is not None]
    arms = tuple(given["arm"] or benchmark.arms)
    for execution in words_of(given["execution"]):
        benchmark.refuse_execution(execution)
        under: dict[str, Any] = {"execution": execution, "arms": benchmark.arms_under(execution, arms)}
        for choice in product(*written):
            values = {name: value for part in choice for name, value in part.items()}
            yield benchmark.request(benchmark.name, **plain, **under, **values)


def _measure(requests: list[Request], share_process: bool, out: Path | None) -> None:
    """One process after the other; the card is written after each, so that an interrupted run keeps what it has."""
    from sightline.cost.card import CostCard
    from sightline.cost.measure import measure, separate
    from sightline.cost.subject import runnable_arm
    from sightline.places.writing import is_replaced

    for request in requests:  # a request that cannot be served is refused before anything is measured
        for arm in request.arms:
            runnable_arm(arm, request.execution)
    results: list[dict[str, Any]] = []
    for request in requests:
        for part in [request] if share_process else separate(request):
            results.append(measure(part))
            if out is not None and is_replaced(out):
                CostCard(results).write(out)
    if out is not None and not is_replaced(out):
        CostCard(results).write(out)
    print(CostCard(results).markdown(), end="")


LENGTH = "How long"
"""Panel of the help."""


class Benchmarks(Commands):
    """The commands below, and one per registered benchmark, made when somebody asks for it."""

    def list_commands(self, ctx: Any) -> list[str]:
        for name, _ in BENCHMARKS.items():
            self._add(name)
        return super().list_commands(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name in BENCHMARKS:
            self._add(cmd_name)
        elif cmd_name not in self.commands:
            self.list_commands(ctx)  # all that "did you mean" may name
        return super().get_command(ctx, cmd_name)

    def _add(self, name: str) -> None:
        if name not in self.commands:
            single = typer.Typer(add_completion=False)
            single.command(name)(command_of(BENCHMARKS.get(name)()))
            self.add_command(typer.main.get_command(single), name)


app = typer.Typer(cls=Benchmarks, no_args_is_help=True)


@app.callback()
def _bench() -> None:
    """Measure selection, prefill, time to first token and whole sweeps."""


# Not a registered benchmark: it times methods on made-up signals, without a model, an arm, a process of its own or a
# card, so that it shares none of their options and nothing of what they hand back.
@app.command()
@with_options
def select(
    method: Annotated[list[str] | None, Flag(metavar="METHOD", shown="all")] = None,
    n: str = "576,2500",
    batch: str = "1,32",
    device: str = "auto",
    repeats: Annotated[int, Flag(LENGTH), Field(ge=1)] = 7,
    seconds: Annotated[float, Flag(LENGTH), Field(ge=0.0)] = 5.0,
    csv: Annotated[Path | None, Written(".csv"), Flag(OUTPUT)] = None,
    json: Annotated[Path | None, Written(".json"), Flag(OUTPUT)] = None,
) -> None:
    """Time every method: median ms per image at keep 0.4, beside its official implementation (one CPU thread).

    Only the choice is timed, not the signals it reads. Times on a machine that does other work are worthless. All
    methods at both sizes take a quarter of an hour on a CPU; name fewer with --method.
    """
    from sightline.cost.selection import devices, time_method, timed_methods
    from sightline.places.writing import is_replaced

    sizes, batches = positive_numbers(n, "--n"), positive_numbers(batch, "--batch")
    names = timed_methods(method or ())
    timings: list[Timing] = []
    kept, streamed = ([file if file and is_replaced(file) == how else None for file in (csv, json)] for how in (1, 0))
    for place in devices(device):
        for name in names:
            for size in sizes:
                for images in batches:
                    timings.append(time_method(name, size, images, place, repeats, seconds))
                    _print_line(timings[-1], header=len(timings) == 1)
                    _write(timings, *kept)
    _write(timings, *streamed)
    _print_growth(timings)


@app.command()
@with_options
def plan(
    card: Annotated[Path, typer.Argument(metavar="CARD", exists=True, dir_okay=False)],
    arm: list[str],
    clients: Annotated[int, Field(ge=1)] = 16,
    tokens: Annotated[int, Field(ge=1)] = 32,
    questions: Annotated[int, Field(ge=1)] = 1,
) -> None:
    """Say what a budget saves at some load, from the stages on a card of 'bench load'.

    Budgets and loads need not have been measured; what is between is drawn as lines. Nothing is run.
    """
    from sightline.cost.card import CostCard
    from sightline.cost.plan import plan as planned
    from sightline.cost.plan import stages_on

    stages = stages_on(CostCard.read(card).results)
    for text in arm:
        print(planned(stages, text, tokens, clients, questions))


def _print_line(timing: Timing, header: bool) -> None:
    """Line by line, so that an interrupted measurement still shows what it has."""
    if header:
        print(
            f"{'method':22}{'device':>7}{'N':>6}{'K':>6}{'batch':>6}{'ms/image':>10}  {'p10..p90':18}{'official':>9}  "
        )
    low, high = timing.spread
    line = f"{timing.method:22}{timing.device:>7}{timing.n:6}{timing.k:6}{timing.batch:6}{timing.median:10.3f}"
    line += f"  {f'{low:.3f}..{high:.3f}':18}"
    if timing.official_ms is not None:
        line += f"{timing.official_ms:9.1f}  x{timing.speedup:.1f}"
    if timing.same_as_cpu is not None:
        line += "  same tokens as CPU" if timing.same_as_cpu else "  OTHER TOKENS THAN CPU"
    print(line, flush=True)


def _print_growth(timings: list[Timing]) -> None:
    """Fitted exponents, for methods measured at several sizes."""
    from sightline.cost.selection import growth

    groups: dict[tuple[str, str, int], list[Timing]] = {}
    for timing in timings:
        groups.setdefault((timing.device, timing.method, timing.batch), []).append(timing)
    exponents = {key: growth(group) for key, group in groups.items()}
    if all(exponent is None for exponent in exponents.values()):
        return
    print("\ntime ~ N^p, K = 0.4 N")
    for (place, method, images), exponent in exponents.items():
        if exponent is not None:
            print(f"{method:22}{place:>7}  batch {images:<4} p = {exponent:.2f}")


def _write(timings: list[Timing], csv: Path | None, json: Path | None) -> None:
    import json as json_format

    from sightline.core.text import write_csv
    from sightline.places.writing import write_whole

    records = [timing.record() for timing in timings]
    if json is not None:
        write_whole(json, json_format.dumps(records, indent=1).encode())
    if csv is not None:
        import pandas as pd

        write_csv(csv, pd.DataFrame(records).drop(columns="samples"))
