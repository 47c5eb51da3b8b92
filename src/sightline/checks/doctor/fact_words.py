"""The facts of an examination in words, for the console and for the page alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any


def fact_lines(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(what, in words), one line each; stages and selectors have tables of their own."""
    image, positions, separators = facts["image"], facts["positions"], facts["separators"]
    width, height = image["size"]
    tokens = f"{image['tokens']} tokens" + ("" if not separators["count"] else f" in {image['slots']} slots")
    return [
        ("model", f"{facts['model']} ({facts['model_type']}), {facts['dtype']} on {facts['device']}"),
        ("served by", f"{facts['served_by']['images']}; language: {facts['served_by']['language']}"),
        ("image", f"{width} x {height} pixels become {tokens}, {layout_words(image['layout'])}"),
        ("separators", separator_words(separators)),
        ("positions", f"{positions['axes']} axis, usually {positions['usual']}".replace("3 axis", "3 axes")),
    ]


def layout_words(layout: Iterable[Iterable[int]]) -> str:
    """Rows x columns of every block, equal ones that follow each other counted."""
    blocks = [" x ".join(map(str, block)) for block in layout]
    counted = [(block, len(list(same))) for block, same in groupby(blocks)]
    return "layout " + ", ".join(block if times == 1 else f"{times} times {block}" for block, times in counted)


def separator_words(separators: Mapping[str, Any]) -> str:
    if not separators["count"]:
        return "none"
    staying = ", ".join(f"{count} stay at {arm}" for arm, count in separators["staying"].items())
    return f"{separators['count']}, {separators['policy']}; {staying}"


def stage_words(stage: Mapping[str, Any]) -> tuple[str, str, str]:
    """Name, milliseconds, and what memory grew by, "" where nobody measured it."""
    grown = stage["mib"]
    return stage["stage"], f"{stage['seconds'] * 1e3:.1f} ms", "" if grown is None else f"+{grown:.1f} MiB"


def methods_by_reason(selectors: Mapping[str, str]) -> dict[str, list[str]]:
    """``yes`` and ``yes, with --clip`` first, then reasons, each with the methods it holds for."""
    found: dict[str, list[str]] = {}
    for name, answer in sorted(selectors.items(), key=lambda item: item[1].startswith("no")):
        found.setdefault(answer, []).append(name)
    return found
