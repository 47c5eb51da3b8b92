"""Ten thousand inputs that nobody meant well: none is a traceback, a hang, a flood of memory or half an output."""

import os
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sightline import SELECTORS, SightlineError
from sightline.arms.arm import arguments_of, parameters
from tests.fuzz import trial
from tests.fuzz.__main__ import shares
from tests.fuzz.subjects import SUBJECTS
from tests.fuzz.subjects.base import Subject
from tests.fuzz.subjects.words import NUMBERS, Arms
from tests.fuzz.trial import Tally, try_given, try_inputs

INPUTS, SEED = 10_100, 20261116


def test_the_inputs_are_many_of_every_kind_and_known_by_their_names_alone(tmp_path: Path) -> None:
    counts = shares(INPUTS)
    assert sum(counts.values()) >= 10_000
    assert len(counts) == len(SUBJECTS), "two kinds have one name"
    for kind in SUBJECTS:
        if kind.name in ("arms", "gate rules", "configs", "masks"):
            one, two = kind(tmp_path / "one" / kind.name), kind(tmp_path / "two" / kind.name)
            assert one.make(Random("1/x/7")) == two.make(Random("1/x/7"))


@pytest.mark.parametrize("kind", SUBJECTS, ids=lambda kind: kind.name.replace(" ", "-"))
def test_every_input_is_taken_or_refused_in_one_line(kind: type[Subject], tmp_path: Path) -> None:
    tally = try_inputs(kind(tmp_path), shares(INPUTS)[kind.name], SEED)
    assert tally.failures == {}
    assert tally.accepted > 0, "nothing good is left: the readers saw no more than their first line"
    assert tally.refused > 0 or kind.forgives


class Failing(Subject, name="failing"):
    """Does what its input says."""

    does = ""

    def make(self, random: Random) -> str:
        return self.does

    def read(self, given: str) -> None:
        if given == "raise":
            raise KeyError("colour")
        if given == "exit":
            raise SystemExit(0)
        if given in ("refuse", "mumble"):
            raise SightlineError("no such colour" if given == "refuse" else "")
        while given == "hang":
            pass
        while given == "stubborn hang":
            try:
                while True:
                    pass
            except (Exception, OSError, TimeoutError):
                pass
        if given == "wait":
            with open(self.folder / "pipe", "rb") as nobody:
                nobody.read()
        if given == "grow":
            self.held: Any = bytearray(2**36)  # more than a process can have kept from before

    def left_behind(self) -> list[str]:
        return ["report.html"] if self.does == "refuse" else []


NOTICED = {
    "raise": "KeyError",
    "exit": "SystemExit",
    "hang": "hang",
    "stubborn hang": "hang",
    "wait": "hang",
    "refuse": "partial output",
    "mumble": "not one line",
    "grow": "MemoryError",
}


@pytest.mark.parametrize("does", NOTICED)
def test_a_failure_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    monkeypatch.setattr(trial, "MOST_CPU", 0.2)
    monkeypatch.setattr(trial, "MOST_WAITING", 5.0)
    if does == "grow":
        # The peak of a process only rises: the bound on what it may ask for at all is what cannot be missed.
        monkeypatch.setattr(trial, "MOST_MEMORY", 2**26)
        monkeypatch.setattr(trial, "_address_space", lambda: 0)
    os.mkfifo(tmp_path / "pipe")
    subject = Failing(tmp_path)
    subject.does = does
    (found,) = try_inputs(subject, 1, 1).failures
    assert found.startswith(NOTICED[does])


ARGUMENTS = {name: list(arguments_of(kind)) for name, kind in SELECTORS.items() if name != "masks" and parameters(kind)}
"""Of every method that has any."""


@pytest.mark.parametrize("method", sorted(ARGUMENTS))
def test_no_value_of_any_argument_fails_or_never_ends(method: str, tmp_path: Path) -> None:
    assert len(ARGUMENTS) >= 30
    arms, tally = Arms(tmp_path), Tally()
    for argument in ARGUMENTS[method]:
        for number in NUMBERS:
            arm = f"{method}:0.3:{argument}={number}"
            try_given(arms, tally, arm, arm)
    assert tally.failures == {}
    assert tally.refused > 0
