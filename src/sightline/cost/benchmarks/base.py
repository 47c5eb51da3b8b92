"""What a cost benchmark is: everything that commands, cards and pages need to know about it, in one place."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, ParamSpec, TypeVar

from sightline.core.registry import Registry
from sightline.cost.request import Measurement, Request
from sightline.cost.spread import (
    OVER_BATCHES,
    Chart,
    Declared,
    FurtherTable,
    Line,
    Quantity,
    Say,
    Spread,
    Summary,
    fastest_arm,
    quantities,
)
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.cost.subject import Subject

BENCHMARKS: Registry[type[Benchmark[Any]]] = Registry(
    "benchmark", group="sightline.benchmarks", package="sightline.cost.benchmarks"
)
"""By the word behind ``sightline bench``. ``@BENCHMARKS.register("name")`` above a class is all a new one needs."""

R = TypeVar("R", bound=Request)
P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound="Benchmark[Any]")
Result = dict[str, Any]
"""What one measuring process wrote; ``sightline.cost.measuring_process`` says what is in it."""


def in_inference_mode(work: Callable[P, T]) -> Callable[P, T]:
    """``torch.inference_mode`` around a function; torch is imported when that is called."""

    @wraps(work)
    def wrapped(*given: P.args, **named: P.kwargs) -> T:
        import torch

        with torch.inference_mode():
            return work(*given, **named)

    return wrapped


def in_words_of(file: str) -> Callable[[type[B]], type[B]]:
    """Above a benchmark's class: title, sentences, arms, stages and columns are those of the TOML file beside it."""

    def tell(kind: type[B]) -> type[B]:
        told = tomllib.loads(Path(file).with_suffix(".toml").read_text(encoding="utf-8"))
        kind.title, kind.description, kind.caption = told["title"], told["description"], told["caption"]
        kind.arms, kind.inside = tuple(told["arms"]), told["inside"]
        kind.declared_columns = told.get("columns", OVER_BATCHES)
        return kind

    return tell


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


class Benchmark(Generic[R]):
    """One kind of measurement. Its file imports torch where samples are taken, not above: ``--help`` reads it too."""

    name: ClassVar[str]
    title: ClassVar[str]
    """What is measured, as the heading of a card."""
    description: ClassVar[str]
    """One sentence for ``--help``."""
    caption: ClassVar[str]
    """What a reader of its table must know."""
    request: ClassVar[type[Request]] = Request
    """Its options: those that all benchmarks have, and its own."""
    arms: ClassVar[tuple[str, ...]] = ("full", "target:0.2")
    """Measured unless ``--arm`` names others."""
    executions: ClassVar[tuple[str, ...]] = ("eager", "compiled", "graph")
    """Those it can run."""
    usual_executions: ClassVar[tuple[str, ...]] = ("eager",)
    """Measured unless ``--execution`` names others."""
    together: ClassVar[bool] = False
    """Whether all arms make one measurement, in one process."""
    planless: ClassVar[bool] = False
    """Whether ``measure`` runs under ``planless``, with kernels that need no plan, as an audit does; cards say so."""

    models_own: ClassVar[bool] = False
    """Whether the language model runs as transformers has it, so that no kernel of ours takes part; cards say so."""

    inside: ClassVar[Mapping[str, str]]
    """Stage -> what its time covers, in the order of the work."""
    main: ClassVar[str]
    """The stage that ratios are taken of."""
    kept: ClassVar[str] = "Every sample is in the JSON file."
    """What of the measurement a card keeps."""
    counted: ClassVar[frozenset[str]] = frozenset()
    """Stages whose operations are estimated; without all of them there is no estimate. Empty: the main stage alone."""
    before_selection: ClassVar[tuple[str, ...]] = ()
    """Stages that cannot depend on the arm: time saved there is not what pruning saved."""
    chart: ClassVar[Chart | tuple[Chart, ...] | None] = None
    summary: ClassVar[type[Summary]] = Spread
    """How the samples of a stage become one number with bounds."""
    declared_columns: ClassVar[Declared] = OVER_BATCHES
    """Those of its tables, behind arm and execution."""

    def measure(self, request: R, subject: Subject) -> Iterator[Measurement]:
        """Takes all samples that the request asks for. Imports torch and what needs it here: that takes seconds."""
        raise NotImplementedError

    def elsewhere(self, request: R) -> Result | None:
        """The whole result, of something that does not run in this process; None where it does, and is measured."""
        return None

    def arms_under(self, execution: str, arms: tuple[str, ...]) -> tuple[str, ...]:
        """The arms to measure, of those asked for."""
        return arms

    def refuse_execution(self, execution: str) -> None:
        if execution not in self.executions:
            raise SightlineError(f"unknown execution '{execution}'; {self.name} runs {', '.join(self.executions)}")

    # ------------------------------------------------------------------ how a card shows it

    def batching(self, request: dict[str, Any]) -> str:
        """How batches are made: lines are compared under the same batching only."""
        return "fixed"

    def batch_words(self, results: Sequence[Result]) -> str:
        """The batches of all results, for the conditions of a card."""
        return ", ".join(map(str, sorted({point["batch"] for result in results for point in result["points"]})))

    def pooled(self, results: Sequence[Result]) -> Sequence[Result]:
        """The results that lines are made of, where several processes make one line together."""
        return results

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        """Columns of a record beyond those that every benchmark has."""
        return {}

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        """The columns of its tables behind arm and execution; that of a stage says what the stage covers."""
        return [
            replace(each, help=sentence(self.inside[each.key])) if each.key in self.inside and not each.help else each
            for each in quantities(self.declared_columns)
        ]

    def further_tables(self, lines: Sequence[Line]) -> Sequence[FurtherTable]:
        """What follows from the lines, in tables of its own."""
        return ()

    def sentence(self, lines: Sequence[Line], say: Say) -> str:
        """What the lines of a table say, in one sentence made from them."""
        return fastest_arm(lines, say, self.before_selection)
