"""Doctor for engines: does the engine answer as the library does, count as it should, and prune as it is asked to?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from PIL import Image

from sightline.answering.answerer import Answerer
from sightline.answering.scorers.spoken import MAX_NEW_TOKENS, OpenAnswer
from sightline.arms import parse_arm
from sightline.auditing.engine_worker import kept_tokens
from sightline.backbones import load_backbone
from sightline.backbones.prompting import Prompting
from sightline.checks.doctor.examination import Check, Examination
from sightline.core.probe import Probe
from sightline.engines import Engine, Heard, Question
from sightline.errors import SightlineError, named_line
from sightline.probes import read_probes
from sightline.probes.images import open_image

KEEPS = (0.9, 0.7, 0.5, 0.3, 0.1, 0.0)
"""Shares of the visual tokens that the engine's own pruning is asked to keep."""
ROUNDING = 1
"""Tokens by which a kept number may differ from the share that was asked for."""
NAMED = 3
"""Differences that a line names; it counts the others."""


@dataclass(frozen=True)
class AskedImage:
    probe: Probe
    image: Image.Image


@dataclass
class EngineExamination:
    """One engine, some open questions about images, and the checkpoint that it was made from, if it is at hand."""

    engine: Engine
    asked: Sequence[AskedImage]
    library: str | None

    def question(self, asked: AskedImage, switches: dict[str, str] | None = None) -> Question:
        text = Prompting.asked(asked.probe.question, in_words=True)
        system = self.engine.system(in_words=True)
        return Question(text, asked.image, system, switches or {}, MAX_NEW_TOKENS)

    @cached_property
    def heard(self) -> list[Heard]:
        """Of every question, nothing pruned."""
        return [self._timed(self.question(asked)) for asked in self.asked]

    def _timed(self, question: Question) -> Heard:
        begun = perf_counter()
        heard = self.engine.ask(question)
        return heard if heard.ms is not None else replace(heard, ms=(perf_counter() - begun) * 1e3)

    @cached_property
    def of_library(self) -> list[tuple[str, int, int]]:
        """Of every question what the checkpoint says by itself, tokens of its image, and of its whole prompt."""
        backbone = load_backbone(str(self.library), dtype="float32", device="cpu")
        answerer, full, found = Answerer(backbone, OpenAnswer()), parse_arm("full"), []
        for asked in self.asked:
            encoded = backbone.encode([backbone.preprocess(asked.image)])
            (answered,) = answerer.answer(full, [asked.probe], encoded)
            found.append((str(answered.values["answer"]), encoded[0].n, answered.trace.sequence_full))
        return found

    # ------------------------------------------------------------------ checks

    def answers(self) -> Check:
        """Unpruned answers against the library's own."""
        if self.library is None:
            return Check(True, "answers: not compared, name the checkpoint with --library", applies=False)
        pairs = [(heard.text.strip(), own) for heard, (own, _, _) in zip(self.heard, self.of_library, strict=True)]
        other = [(said, own) for said, own in pairs if said != own]
        named = "; ".join(f"{said!r}, the library {own!r}" for said, own in other[:NAMED])
        words = f"answers: {len(pairs) - len(other)} of {len(pairs)} unpruned answers are the library's own"
        return Check(not other, words + (f" ({named}); {self._part()}" if other else ""), {"different": len(other)})

    def _part(self) -> str:
        """Which part of the way answers can part at, as far as counts tell."""
        counts = [(heard.prompt_tokens, own) for heard, (_, _, own) in zip(self.heard, self.of_library, strict=True)]
        if any(told is None for told, _ in counts):
            return "template, preprocessing or precision: without counts nobody can tell"
        if all(told == own for told, own in counts):
            return "prompts are equally long, so template and image size agree: precision, or pixels"
        images = [self.engine.grid(asked.image.size) for asked in self.asked]
        alike = all(
            grid is None or grid.rows * grid.columns == n
            for grid, (_, n, _) in zip(images, self.of_library, strict=True)
        )
        return (
            "prompts differ in length, images do not: the template" if alike else "images differ in size: preprocessing"
        )

    def prompt_tokens(self) -> Check:
        """Counts against the library's prompt, else against the engine's own rule for images."""
        if any(heard.prompt_tokens is None for heard in self.heard):
            return Check(True, "prompt tokens: not counted, so kept shares stay unknown", applies=False)
        told: list[int | None] = []
        wanted: list[int | None] = []
        for index, (asked, heard) in enumerate(zip(self.asked, self.heard, strict=True)):
            if self.library is not None:
                told.append(heard.prompt_tokens)
                wanted.append(self.of_library[index][2])
            elif (grid := self.engine.grid(asked.image.size)) is not None:
                told.append(kept_tokens(self.engine, self.question(asked), heard, self.engine.ask))
                wanted.append(grid.rows * grid.columns)
        if not told:
            return Check(True, "prompt tokens: nothing to hold them against, name a --library", applies=False)
        of = "by its rule for images" if self.library is None else "of the library"
        off = [f"{count} instead of {right}" for count, right in zip(told, wanted, strict=True) if count != right]
        words = f"prompt tokens: {len(told) - len(off)} of {len(told)} counts are those {of}"
        return Check(not off, words + (f" ({', '.join(off[:NAMED])})" if off else ""), {"different": len(off)})

    def switches(self) -> Check:
        """Pruning at several shares: what was kept against what was asked for."""
        asked, found, wrong = self.asked[0], {}, []
        n = kept_tokens(self.engine, self.question(asked), self.heard[0], self.engine.ask)
        for keep in KEEPS if n else ():
            arm = self.engine.pruning_arm(keep)
            if arm is None:
                continue
            switches = parse_arm(arm).switches
            question = self.question(asked, switches)
            k = kept_tokens(self.engine, question, self.engine.ask(question), self.engine.ask)
            found[arm] = k
            if k is None or abs(k - keep * (n or 0)) > ROUNDING:
                wrong.append(f"{arm} keeps {'all ' if k == n else ''}{k} of {n}")
        if not found:
            return Check(True, "switches: it prunes nothing by itself, or does not count", applies=False)
        words = f"switches: {len(found) - len(wrong)} of {len(found)} pruned as asked"
        return Check(not wrong, words + (f"; {'; '.join(wrong)}" if wrong else ""), {"kept": found, "of": n})

    def repeated(self) -> Check:
        """The same question twice."""
        other = 0
        for asked, heard in zip(self.asked, self.heard, strict=True):
            again = self.engine.ask(self.question(asked))
            other += (again.text, again.prompt_tokens) != (heard.text, heard.prompt_tokens)
        words = f"determinism: {len(self.asked) - other} of {len(self.asked)} answers are the same when asked again"
        return Check(not other, words, {"different": other})

    def made(self) -> Examination:
        checks: dict[str, Callable[[], Check]] = {
            "answers": self.answers,
            "prompt_tokens": self.prompt_tokens,
            "switches": self.switches,
            "determinism": self.repeated,
        }
        done = []
        for name, check in checks.items():
            try:
                made = check()
            except SightlineError as error:
                made = Check(False, f"{name.replace('_', ' ')}: could not be tried ({named_line(error)})")
            done.append(Check(made.passed, made.words, made.measured, name, made.applies))
        facts: dict[str, Any] = {
            "model": self.engine.model,
            "engine": self.engine.name,
            "questions": len(self.asked),
            "seconds_per_answer": round(median(heard.ms or 0.0 for heard in self.heard) / 1e3, 4),
            "cells": "traced" if self.engine.traces else "not told",
            "untold": dict(self.engine.untold),
        }
        return Examination(tuple(done), facts)


def examine_engine(
    engine: Engine, probes: Path, images: Path, *, library: str | None = None, questions: int = 8
) -> Examination:
    """An engine under the first open questions of a probe file."""
    chosen = [probe for probe in read_probes(probes).probes if probe.is_open][:questions]
    if not chosen:
        raise SightlineError(f"{probes} has no open questions, which an engine is examined with")
    asked = [AskedImage(probe, open_image(images, probe.image)) for probe in chosen]
    engine.load()
    return EngineExamination(engine, asked, library).made()
