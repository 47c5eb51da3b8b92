"""What a gate decided, for a job page (Markdown) and for test runners (JUnit XML)."""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree import ElementTree

from sightline.report.gate import GatedRun, Outcome
from sightline.report.table import format_range, format_value


def interval_words(outcome: Outcome) -> str:
    found = format_range(outcome.low, outcome.high, "signed" if outcome.rule.right else "score")
    return f"{found} (90%)" if found and outcome.rule.margin else found


def value_words(outcome: Outcome) -> str:
    return format_value(outcome.value, "signed" if outcome.rule.right else "score")


def markdown(runs: Sequence[GatedRun]) -> str:
    """A summary for a pull request or a job page: per run one table and its notes."""
    return "".join(_markdown_table(run) for run in runs)


def _markdown_table(run: GatedRun) -> str:
    passed = sum(outcome.passed for outcome in run.outcomes)
    lines = [
        f"### Sightline gate: {passed} of {len(run.outcomes)} rules passed ({run.name})",
        "",
        "| | Rule | n | Value | 95% interval | Why |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for outcome in run.outcomes:
        rule = outcome.rule.text.replace("|", "\\|")
        lines.append(
            f"| {outcome.verdict} | `{rule}` | {outcome.n} | {value_words(outcome)} | {interval_words(outcome)} | "
            f"{outcome.words} |"
        )
    if run.notes:
        lines += ["", *(f"- {note}" for note in run.notes)]
    return "\n".join(lines) + "\n"


def junit(runs: Sequence[GatedRun]) -> bytes:
    """JUnit XML: one suite per run, one test case per rule."""
    root = ElementTree.Element("testsuites")
    root.extend(_junit_suite(run) for run in runs)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _junit_suite(run: GatedRun) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        name="sightline gate",
        tests=str(len(run.outcomes)),
        failures=str(sum(not outcome.passed for outcome in run.outcomes)),
        errors="0",
        skipped="0",
    )
    if run.notes:
        properties = ElementTree.SubElement(suite, "properties")
        for note in run.notes:
            ElementTree.SubElement(properties, "property", name="note", value=note)
    for outcome in run.outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=f"sightline.gate.{run.name}", name=outcome.rule.text)
        interval = interval_words(outcome) or "none"
        detail = f"value {value_words(outcome)}, 95% interval {interval}, n = {outcome.n}: {outcome.words}"
        if not outcome.passed:
            failure = ElementTree.SubElement(case, "failure", type=outcome.verdict, message=outcome.words)
            failure.text = detail
        else:
            ElementTree.SubElement(case, "system-out").text = detail
    return suite
