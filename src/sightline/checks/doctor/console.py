"""An examination on the console: one line a check, then the facts."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from sightline.checks.doctor.examination import Examination
from sightline.checks.doctor.fact_words import fact_lines, methods_by_reason, stage_words
from sightline.progress import SafeConsole


def print_examination(found: Examination, console: SafeConsole) -> None:
    checks = Table(box=None, show_header=False, pad_edge=False)
    for check in found:
        mark = Text("ok", style="green") if check.passed else Text("FAILED", style="red")
        checks.add_row(mark, Text(check.words))
    console.print(checks)
    if found.facts:
        print_facts(found, console)
    if found.failed:
        console.print(
            f"{found.failed} of {len(found)} checks failed: rows from this checkpoint would not be trustworthy"
        )
    else:
        console.print(f"all {len(found)} checks passed")


def print_facts(found: Examination, console: SafeConsole) -> None:
    facts = Table(box=None, show_header=False, pad_edge=False)
    for name, words in fact_lines(found.facts):
        facts.add_row(Text(name, style="bold"), Text(words))
    stages = Table(box=None, show_header=False, pad_edge=False)
    for stage in found.facts["stages"]:
        stages.add_row(*stage_words(stage))
    facts.add_row(Text("stages", style="bold"), stages)
    selectors = found.facts["selectors"]
    for number, (answer, names) in enumerate(methods_by_reason(selectors).items()):
        title = "" if number else "selectors"
        facts.add_row(Text(title, style="bold"), Text(f"{answer} ({len(names)}): {', '.join(names)}"))
    console.print()
    console.print(facts)
    console.print()
