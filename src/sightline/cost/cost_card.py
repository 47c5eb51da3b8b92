"""The cost card: what was measured, on what, with what inside the timer; as JSON, Markdown and a data frame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.card_records import lines_of, records_of, stages_of
from sightline.cost.card_text import card_facts, card_markdown
from sightline.cost.presentation import FurtherTable
from sightline.cost.reading import Line
from sightline.cost.spread import Summary
from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.places.writing import is_replaced, write_whole

if TYPE_CHECKING:
    import pandas as pd

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
