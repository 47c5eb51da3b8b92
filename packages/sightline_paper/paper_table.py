"""A table of the paper: blocks of printed lines with published values, a way to measure each, and claims.

One file per table says all of it; ``tables/`` has the paper's own, and ``read_table`` reads any other:

    number: S0
    title: Accuracy of one method
    about: Confirmation set at t = 0.
    populations:
      qwen: {model: qwen, probes: confirmation}     # and threshold, box_source, scorer where they are not the usual
    blocks:
    - words: [Model, Method]                        # heads of the text columns
      columns: [n, keep, accuracy]                  # metrics, or [key, title, kind, interval]; n counts probes
      lines:
      - of: qwen
        words: [Qwen]                               # what all rows begin with
        rows:                                       # arm, further words, published cells: [value, low, high], ~ a dash
        - [full, Full, 1000, 1.000, 0.783]
        - [target:0.3, Target (30%), 1000, 0.301, 0.786]
    claims:
    - says: Target answers as well as Full within 0.02.
      of: qwen
      rule: equal(accuracy(target:0.3), accuracy(full), 0.02)

A row begins with what ``fields`` names, usually the arm alone, and may end early: the rest is blank. A panel goes on
until the next one is named. Columns that are not metrics need a ``measure``, a function of ``measures``,
``open_measures``, ``cost_cards`` or ``package.module:function`` that is given the study and the line; ``needs`` are the
rows that it looks at where they are not those of the line's arm. A rule may name populations in front of its arms,
``accuracy(qwen · full)``; a claim about a printed interval names its ``column`` (and ``block``, ``line``), and any
other a function, ``decide``.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from sightline.core.registry import Registry
from sightline.core.table import TableColumn
from sightline.errors import SightlineError, yaml_line
from sightline.gate.rules import Term, parse_rule
from sightline.report.columns import column_of
from sightline.statistics.metrics import METRICS
from sightline_paper import cost_cards, measures, open_measures
from sightline_paper.cases import NEEDS as CASES
from sightline_paper.claims import Claim, Judgement, cell_claim, rule_claim
from sightline_paper.lines import AT_ZERO, Line, Measured, Threshold, cells, summary_of, usual_needs
from sightline_paper.models import MODELS
from sightline_paper.needs import Need
from sightline_paper.study import Study

Measure = Callable[[Study, Line], Sequence[Measured]]


@dataclass(frozen=True)
class Block:
    """Lines under one head. Most tables are one block."""

    words: tuple[str, ...]
    """Heads of the text columns."""
    columns: tuple[TableColumn, ...]
    """The measured columns."""
    lines: tuple[Line, ...]
    measure: Measure
    """Cells of a line, one per measured column."""
    needs: Callable[[Line], Iterable[Need]] = usual_needs
    """Rows that a line asks for."""
    title: str = ""
    requires: str = ""
    """What the block needs beyond rows, in words: a GPU, people's decisions."""
    prepare: Callable[[Study, tuple[Line, ...]], None] | None = None
    """Makes what its lines need beyond rows, once, before any is measured: cost cards."""


@dataclass(frozen=True)
class PaperTable:
    """One numbered table."""

    number: str
    """``1``, ``2``, ``S1`` ..."""
    title: str
    about: str
    """What it shows and how its cells are made, in our words."""
    blocks: tuple[Block, ...]
    claims: tuple[Claim, ...] = ()

    def needs(self) -> list[Need]:
        lines = [need for block in self.blocks for line in block.lines for need in block.needs(line)]
        return [*lines, *(need for claim in self.claims for need in claim.needs)]

    def models(self) -> list[str]:
        """The paper's names of the models that its lines are about."""
        found = {need.model for need in self.needs()} | {line.model for block in self.blocks for line in block.lines}
        return [name for name in MODELS if name in found]


PAPER_TABLES: Registry[PaperTable] = Registry(
    "table of the paper", group="sightline.paper_tables", package="sightline_paper.tables"
)


def in_order(numbers: Iterable[str]) -> list[str]:
    """Main tables first, then the supplement's, each by number; then those of other papers, by name."""

    def rank(number: str) -> tuple[int, int, str]:
        plain = re.fullmatch(r"(S?)(\d+)", number)
        return (2, 0, number) if plain is None else (len(plain[1]), int(plain[2]), number)

    return sorted(numbers, key=rank)


# The file of a table.

COUNT = TableColumn("n", "n", "count")
APART = " · "
"""Between a population and an arm in a rule, as reports of several runs name their arms."""


def read_table(path: Path) -> PaperTable:
    """A table from its file; what cannot be read is said with the file and where it stands."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        return _TableFile(**found).table()
    except (OSError, yaml.YAMLError) as error:
        raise SightlineError(f"{path} cannot be read as the file of a table: {yaml_line(error)}") from None
    except SightlineError as error:
        raise SightlineError(f"{path}: {error}") from None
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        said = f"'{error.args[0]}' is not there" if isinstance(error, KeyError) else _of_keys(str(error))
        raise SightlineError(f"{path} is not the file of a table: {said}") from error


def _of_keys(said: str) -> str:
    """What Python says of arguments, as it is for whoever writes the file."""
    return re.sub(r"(required )?(positional|keyword(-only)?) argument", "key", said.rpartition("() ")[2])


def _known(name: str, keys: Iterable[str], allowed: Iterable[str]) -> None:
    if unknown := sorted(set(keys) - set(allowed)):
        raise SightlineError(f"{name} has unknown keys: {', '.join(unknown)}")


@dataclass(frozen=True)
class _TableFile:
    """What the file of a table says."""

    number: str
    title: str
    about: str
    blocks: list[dict[str, Any]]
    populations: Mapping[str, Mapping[str, str]] | None = None
    claims: Sequence[Mapping[str, Any]] = ()

    def table(self) -> PaperTable:
        blocks = tuple(self._block(number, **found) for number, found in enumerate(self.blocks, 1))
        claims = tuple(self._claim(blocks, **found) for found in self.claims)
        return PaperTable(self.number, self.title, self.about, blocks, claims)

    def _population(self, name: str | None) -> dict[str, Any]:
        """What lines of a population have in common."""
        if name is None:
            return {}
        if name not in (self.populations or {}):
            raise SightlineError(f"there is no population '{name}'")
        found: dict[str, Any] = dict((self.populations or {})[name])
        _known(f"population '{name}'", found, ("model", "probes", "threshold", "box_source", "scorer"))
        return {**found, "threshold": _threshold(found.get("threshold", ""))}

    def _line(self, words: Sequence[str], published: Sequence[Any], fields: Mapping[str, Any]) -> Line:
        """``fields``: a population (``of``), arm and panel; all others are what the line is further about."""
        about = {name: value for name, value in fields.items() if name not in ("of", "arm", "panel")}
        own = {name: fields[name] for name in ("arm", "panel") if name in fields}
        stated = tuple(Measured(*cell) if isinstance(cell, list) else cell for cell in published)
        return Line(tuple(words), stated, **self._population(fields.get("of")), **own, about=about)

    def _block(
        self,
        number: int,
        *,
        words: list[str],
        columns: list[Any],
        lines: list[dict[str, Any]],
        measure: str = "",
        fields: Sequence[str] = ("arm",),
        options: Mapping[str, Any] | None = None,
        needs: list[Any] | None = None,
        title: str = "",
        requires: str = "",
        prepare: str = "",
    ) -> Block:
        own = [_Column.read(column) for column in columns]
        found = tuple(self._lines(number, lines, words, len(columns), fields, options or {}))
        asked = _needs_of(needs) if needs is not None else _needs_at(own)
        return Block(
            tuple(words),
            tuple(column.column for column in own),
            found,
            _function(measure) if measure else _metrics(own),
            asked,
            title,
            requires,
            _function(prepare) if prepare else None,
        )

    def _lines(
        self,
        block: int,
        groups: list[dict[str, Any]],
        heads: list[str],
        columns: int,
        fields: Sequence[str],
        options: Mapping[str, Any],
    ) -> Iterator[Line]:
        panel = ""
        for group in groups:
            shared = {name: value for name, value in group.items() if name not in ("words", "rows")}
            panel = shared.setdefault("panel", panel)
            first = group.get("words", [])
            for number, row in enumerate(group["rows"], 1):
                texts = len(heads) - len(first)
                if len(row) > len(fields) + texts + columns:
                    raise SightlineError(
                        f"block {block}, row {number} of {group.get('of', 'its lines')} has {len(row)} entries; there "
                        f"are {len(fields)} fields, {texts} words and {columns} columns"
                    )
                values, rest = row[: len(fields)], row[len(fields) :]
                words, published = rest[:texts], rest[texts:]
                yield self._line(
                    [*first, *words, *[""] * (texts - len(words))],
                    [*published, *[None] * (columns - len(published))],
                    {**options, **shared, **dict(zip(fields, values, strict=True))},
                )

    def _claim(
        self,
        blocks: Sequence[Block],
        *,
        says: str,
        rule: str = "",
        column: str = "",
        decide: str = "",
        block: int | None = None,
        line: str = "",
        needs: list[Any] | None = None,
        answers: bool = True,
        words: str = "",
        expects: Any = "above",
        margin: float = math.nan,
        otherwise: str = "",
        **fields: Any,
    ) -> Claim:
        if rule:
            found = parse_rule(rule)
            sides = [self._side(term, fields.get("of")) for term in found.terms]
            return rule_claim(says, found, sides[0], sides[-1])
        own = blocks[(block or 1) - 1]
        if column:
            about = self._printed(own, line) if line else self._line((), (), fields)
            index = [each.key for each in own.columns].index(column)
            return cell_claim(
                says,
                lambda study: own.measure(study, about)[index],
                own.needs(about),
                words=words,
                expects=expects,
                margin=margin,
                otherwise=otherwise,
            )
        about = self._line((), (), {**fields, "lines": own.lines})
        judge: Callable[[Study, Line], Judgement] = _function(decide)
        if needs is not None:
            asked = _needs_of(needs)(about)
        elif block is not None:
            asked = [need for each in own.lines for need in own.needs(each)]
        else:
            asked = usual_needs(about) if about.arm else []
        return Claim(says, lambda study: judge(study, about), tuple(asked), answers)

    def _side(self, term: Term, of: str | None) -> Line:
        """One side of a rule: ``arm`` of the claim's population, or ``population · arm``."""
        population, apart, arm = term.arm.rpartition(APART)
        return self._line((), (), {"of": population if apart else of, "arm": arm})

    def _printed(self, block: Block, words: str) -> Line:
        found = [each for each in block.lines if words in (each.words[0], APART.join(each.words))]
        if len(found) != 1:
            raise SightlineError(f"'{words}' is not the one line of a claim: {len(found)} lines are called so")
        return found[0]


@dataclass(frozen=True)
class _Column:
    """A column, and the metric and threshold that its cells are of where no function measures them."""

    column: TableColumn
    metric: str = ""
    threshold: Threshold | None = None
    """None: that of the line."""

    @classmethod
    def read(cls, found: str | list[Any] | dict[str, Any]) -> _Column:
        """``n``, a metric, ``[key, title, kind, interval]``, or a mapping of these and of metric and threshold.

        Under a title of its own a metric has no help: its definition is that of its usual label.
        """
        if found == COUNT.key:
            return cls(COUNT)
        if isinstance(found, str):
            return cls(column_of(METRICS[found]), found)
        if isinstance(found, list):
            key, title, kind, *interval = found
            return cls(TableColumn(key, title, kind, interval=bool(interval)), key)
        given = dict(found)
        metric, threshold = given.pop("metric", ""), given.pop("threshold", None)
        usual = replace(column_of(METRICS[metric]), help="") if metric else TableColumn("", "")
        if metric and "title" not in given:
            usual = column_of(METRICS[metric])
        return cls(replace(usual, **given), metric, None if threshold is None else _threshold(threshold))


def _threshold(rule: str) -> Threshold:
    return AT_ZERO if rule in ("", "zero") else Threshold(rule)


def _metrics(columns: Sequence[_Column]) -> Measure:
    """The metrics of the line's arm at its threshold or at those of the columns, and how many probes it has."""

    names = tuple(dict.fromkeys(column.metric for column in columns if column.metric))

    def measure(study: Study, line: Line) -> list[Measured]:
        found: list[Measured] = []
        for column in columns:
            at = line if column.threshold is None else replace(line, threshold=column.threshold)
            own = summary_of(study, at, names)
            found += cells(own, [column.metric]) if column.metric else [Measured(float(own["n_probes"]))]
        return found

    return measure


def _needs_at(columns: Sequence[_Column]) -> Callable[[Line], list[Need]]:
    """The usual needs of a line at every threshold of its columns."""
    thresholds = dict.fromkeys(column.threshold for column in columns)

    def needs(line: Line) -> list[Need]:
        at = [line if each is None else replace(line, threshold=each) for each in thresholds]
        return [need for each in at for need in usual_needs(each)]

    return needs


def _needs_of(templates: list[Any]) -> Callable[[Line], list[Need]]:
    """Rows by name (``cases``: those that open cases are chosen from), or as the line fills in ``{arm}`` and others."""

    def needs(line: Line) -> list[Need]:
        found: list[Need] = []
        for template in templates:
            if template == "cases":
                found += CASES
                continue
            _known("a need", template, ("model", "probes", "arms", "box_source", "scorer"))
            given = {name: getattr(line, name) for name in ("model", "probes", "box_source", "scorer")} | template
            arms = [arm for text in given.pop("arms") for arm in _filled(text, line)]
            found.append(Need(arms=tuple(arms), **{name: _filled(text, line)[0] for name, text in given.items()}))
        return found

    return needs


def _filled(text: str, line: Line) -> list[str]:
    """``{name}`` is what the line says of it, which may be nothing or a list; inside a longer text it is one word."""
    fields = {"arm": line.arm, **line.about}
    whole = re.fullmatch(r"\{(\w+)\}", text)
    if whole is None:
        return [text.format(**fields)]
    value = fields[whole[1]]
    return list(value) if isinstance(value, list) else [] if value is None else [value]


def _function(name: str) -> Callable[..., Any]:
    """A function of ``measures``, ``open_measures`` or ``cost_cards``, or ``package.module:function``."""
    module, colon, attribute = name.partition(":")
    modules = [importlib.import_module(module)] if colon else [measures, open_measures, cost_cards]
    for each in modules:
        found: Callable[..., Any] | None = getattr(each, attribute or name, None)
        if found is not None:
            return found
    raise SightlineError(f"there is no function '{name}' to measure or to decide with")
