"""``sightline bench``: measures Sightline's own parts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sightline.commands.benchmark_commands import command_of
from sightline.commands.help_pages import Commands
from sightline.commands.path_or_url import file_option
from sightline.cost.benchmarks.base import BENCHMARKS
from sightline.cost.request import positive_numbers, words_of

if TYPE_CHECKING:
    from sightline.cost.timing.time_selection import Timing

LENGTH, OUTPUT = "How long", "Output"
"""Panels of the help."""


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
def select(
    method: Annotated[
        list[str] | None, typer.Option(metavar="METHOD", help="Method to time. Repeatable.", show_default="all")
    ] = None,
    methods: Annotated[str, typer.Option(hidden=True)] = "",
    n: Annotated[str, typer.Option("--n", help="Comma-separated numbers of visual tokens.")] = "576,2500",
    batch: Annotated[str, typer.Option(help="Comma-separated images per call.")] = "1,32",
    device: Annotated[str, typer.Option(help="auto (CPU, and GPU where there is one), cpu, cuda.")] = "auto",
    repeats: Annotated[int, typer.Option(min=1, help="Samples per measurement.", rich_help_panel=LENGTH)] = 7,
    seconds: Annotated[
        float, typer.Option(min=0.0, help="Stop a measurement early after this long.", rich_help_panel=LENGTH)
    ] = 5.0,
    csv: Annotated[
        Path | None,
        file_option("Table with one line per measurement.", endings=(".csv",), rich_help_panel=OUTPUT),
    ] = None,
    json: Annotated[
        Path | None, file_option("The same with every sample.", endings=(".json",), rich_help_panel=OUTPUT)
    ] = None,
) -> None:
    """Time every method: median ms per image at keep 0.4, beside its official implementation (one CPU thread).

    Only the choice is timed, not the signals it reads. Times on a machine that does other work are worthless. All
    methods at both sizes take a quarter of an hour on a CPU; name fewer with --method.
    """
    from sightline.cost.timing.time_selection import devices, time_method, timed_methods
    from sightline.places.writing import is_replaced

    sizes, batches = positive_numbers(n, "--n"), positive_numbers(batch, "--batch")
    named = [*(method or ()), *words_of(methods)]
    if methods:
        written = " ".join(f"--method {name}" for name in words_of(methods))
        typer.echo(f"hint: --methods {methods} is now written {written}", err=True)
    names = timed_methods(named)
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
    from sightline.cost.timing.time_selection import growth

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
    import csv as csv_format
    import io
    import json as json_format

    from sightline.places.writing import write_whole

    records = [timing.record() for timing in timings]
    if json is not None:
        write_whole(json, json_format.dumps(records, indent=1).encode())
    if csv is not None:
        buffer = io.StringIO()
        columns = [name for name in records[0] if name != "samples"]
        table = csv_format.DictWriter(buffer, columns, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(records)
        write_whole(csv, buffer.getvalue().encode())
