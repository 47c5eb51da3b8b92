"""``sightline bench NAME`` for every registered benchmark: its command is made from the options that it declares."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from sightline.commands.path_or_url import file_option
from sightline.cost.benchmarks.base import Benchmark
from sightline.cost.request import Request, flag_of, options_of, words_of
from sightline.errors import SightlineError

COMMON = "Options that all benchmarks have"


def command_of(benchmark: Benchmark[Any]) -> Callable[..., None]:
    """A function with the benchmark's options as parameters, for typer to read."""

    def command(**given: Any) -> None:
        share_process = bool(given.pop("share_process", benchmark.together))
        out: Path | None = given.pop("out")
        _follow_former_flags(benchmark, given)
        _measure(list(requests_of(benchmark, given)), share_process, out)

    parameters = list(_parameters(benchmark))
    command.__doc__ = benchmark.description
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _parameters(benchmark: Benchmark[Any]) -> Iterator[inspect.Parameter]:
    """What the benchmark's request asks for, its own options before those that all have, and what the command asks."""
    common = dict(options_of(Request))
    declared = dict(options_of(benchmark.request))
    yield from (_declared(benchmark, name, panel=None) for name in declared if name not in common)
    arms = f"Arms to measure; repeatable. Without it: {', '.join(benchmark.arms)}."
    yield _parameter("arm", list[str] | None, None, arms)
    executions = f"Comma-separated: {', '.join(benchmark.executions)}."
    yield _parameter("execution", str, ",".join(benchmark.usual_executions), executions)
    yield _parameter("random_weights", bool, False, "Needed with --shape: weights do not affect speed.")
    yield from (_declared(benchmark, name) for name in common if name in declared)
    yield from _former(benchmark)
    if not benchmark.together:
        yield _parameter("share_process", bool, False, "All arms in one process: quicker, less clean.")
    card = file_option("Cost card: JSON here, Markdown beside it.", "--out", endings=(".json",), rich_help_panel=COMMON)
    kind = Annotated[Path | None, card]
    yield inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)


def _former(benchmark: Benchmark[Any]) -> Iterator[inspect.Parameter]:
    """Flags of the release before, not shown."""
    for name, option in options_of(benchmark.request):
        if option.former:
            hidden = Annotated[str, typer.Option(option.former, hidden=True)]
            yield inspect.Parameter(f"former_{name}", inspect.Parameter.KEYWORD_ONLY, default="", annotation=hidden)


def _follow_former_flags(benchmark: Benchmark[Any], given: dict[str, Any]) -> None:
    for name, option in options_of(benchmark.request):
        if option.former and (value := given.pop(f"former_{name}")):
            print(f"{option.former} is called {flag_of(name, option)} now", file=sys.stderr)
            given[name] = given[name] or value


def _declared(benchmark: Benchmark[Any], name: str, panel: str | None = COMMON) -> inspect.Parameter:
    """The parameter for a field of the benchmark's request; text where the field reads its value from text."""
    option = dict(options_of(benchmark.request))[name]
    flag = flag_of(name, option)
    if option.read is not None:
        return _parameter(name, str, option.usual, option.help, flag=flag, panel=panel)
    kind = get_type_hints(benchmark.request)[name]
    default = getattr(benchmark.request, name)
    return _parameter(name, kind, default, option.help, flag=flag, minimum=option.minimum, panel=panel)


def _parameter(
    name: str,
    kind: Any,
    default: Any,
    help: str,
    *,
    flag: str = "",
    minimum: int | None = None,
    panel: str | None = COMMON,
) -> inspect.Parameter:
    flag = flag or f"--{name.replace('_', '-')}"
    annotation = Annotated[kind, typer.Option(flag, help=help, min=minimum, rich_help_panel=panel)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def requests_of(benchmark: Benchmark[Any], given: dict[str, Any]) -> Iterator[Request]:
    """A request per execution and per value of every option that takes several."""
    config, checkpoint = given["config"], given["checkpoint"]
    if bool(config) == bool(checkpoint):
        raise SightlineError("name what to measure: --shape NAME --random-weights, or --model CHECKPOINT")
    if config and not given["random_weights"]:
        raise SightlineError(f"--shape {config} has no weights of its own: add --random-weights, or use --model")
    asked = dict(options_of(benchmark.request))
    plain = {name: given[name] for name, option in asked.items() if option.read is None}
    written = [option.read(given[name]) for name, option in asked.items() if option.read is not None]
    arms = tuple(given["arm"] or benchmark.arms)
    for execution in words_of(given["execution"]):
        benchmark.refuse_execution(execution)
        under: dict[str, Any] = {"execution": execution, "arms": benchmark.arms_under(execution, arms)}
        for choice in product(*written):
            values = {name: value for part in choice for name, value in part.items()}
            yield benchmark.request(benchmark.name, **plain, **under, **values)


def _measure(requests: list[Request], share_process: bool, out: Path | None) -> None:
    """One process after the other; the card is written after each, so that an interrupted run keeps what it has."""
    from sightline.cost.cost_card import CostCard
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
