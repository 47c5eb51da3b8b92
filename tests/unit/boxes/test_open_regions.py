"""Where the answer to an open question stands is the audit's secret: no selector sees it, unless as a named oracle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from sightline.answering.select_step import SelectStep
from sightline.arms.arm import parse_arm
from sightline.boxes.sources import show_boxes
from sightline.core.probe import Box, Probe
from sightline.core.selection import Selection, Selector, TokenView
from sightline.cost.subject import Subject

REGION: Box = (0.1, 0.1, 0.3, 0.2)
SHOWN: Box = (0.5, 0.5, 0.6, 0.6)
OPEN = Probe(
    "t:1", "a.png", "a", "Who sold it?", "open", "", "", (REGION,), answers=("Mill",), roles=("answer_value",), task="t"
)
BINARY = Probe("p", "a.png", "a", "Mill?", "yes", "Mill", "Mill", (REGION,))


@dataclass(frozen=True)
class Watching(Selector):
    """Keeps the first tokens, and every view that it was given."""

    seen: list[TokenView] = field(default_factory=list)

    name: ClassVar[str] = "watching"
    reads_boxes: ClassVar[bool | None] = True

    def select(self, view: TokenView, k: int) -> Selection:
        self.seen.append(view)
        return Selection(torch.arange(k))


def seen_by_a_selector(subject: Subject, probes: Sequence[Probe]) -> list[TokenView]:
    backbone = subject.backbone
    (encoded,) = backbone.encode([backbone.preprocess(subject.image(0))])
    watching = Watching()
    arm = replace(parse_arm("random:0.5"), selector=watching)
    for probe in probes:
        SelectStep(backbone)(encoded, backbone.prompt(probe.question, "sold"), probe, arm)
    return watching.seen


def test_a_selector_sees_regions_of_yes_no_probes_and_none_of_open_questions(subject: Subject) -> None:
    binary, asked = seen_by_a_selector(subject, [BINARY, OPEN])
    assert binary.boxes.tolist() == [list(REGION)]
    assert asked.boxes.tolist() == []


def test_answers_decoys_roles_and_regions_change_nothing_that_a_selector_sees(subject: Subject) -> None:
    other = replace(OPEN, answers=("Lane", "Road"), decoy="Mill", roles=("context",), regions=(SHOWN,))
    one, same = seen_by_a_selector(subject, [OPEN, other])
    for name in ("tokens", "cells", "query", "boxes"):
        assert torch.equal(getattr(one, name), getattr(same, name)), name
    assert (one.key, one.probe_id, one.layout) == (same.key, same.probe_id, same.layout)


def test_boxes_that_the_file_gives_are_seen() -> None:
    assert replace(OPEN, boxes=(SHOWN,)).visible_boxes == (SHOWN,)
    assert OPEN.visible_boxes == ()
    assert BINARY.visible_boxes == (REGION,)


@pytest.mark.parametrize(("source", "boxes"), [("annotation", ()), ("gt", (REGION,)), ("missing", ())])
def test_only_a_source_that_is_an_oracle_shows_the_regions(source: str, boxes: tuple[Box, ...]) -> None:
    (shown,) = show_boxes([OPEN], source, Path()).probes
    assert shown.visible_boxes == boxes
    assert shown.regions == (REGION,)
