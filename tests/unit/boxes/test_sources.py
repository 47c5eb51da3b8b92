"""Where boxes come from: one registry of annotation, noise variants, detectors and other people's sources."""

import gzip
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from sightline.answering.materialise import SelectStep
from sightline.arms.arm import parse_arm
from sightline.boxes import detectors
from sightline.boxes.detection import Detected
from sightline.boxes.detectors import DETECTORS, FindsByReading, FoundText
from sightline.boxes.quality import (
    AUDIT_SEED,
    AUDIT_VARIANTS,
    BoxQuality,
    adjusted_coverage,
    best_ious,
    iou,
    noisy_regions,
)
from sightline.boxes.sources import (
    BOX_SOURCES,
    SEED,
    VARIANTS,
    BoxesBeside,
    BoxSource,
    Shown,
    check_source,
    register_detectors,
    show_boxes,
    simulate,
)
from sightline.core.probe import Box, Probe
from sightline.core.selection import Selection, Selector, TokenView
from sightline.cost.subject import Subject
from sightline.errors import SightlineError
from tests.refusals import Refused

REGION: Box = (0.1, 0.1, 0.3, 0.2)
SHOWN: Box = (0.5, 0.5, 0.6, 0.6)
WHOLE: Box = (0.0, 0.0, 1.0, 1.0)
PROBE = Probe("p", "a.png", "a", "T?", "yes", "T", "T", (REGION,))
OPEN = Probe(
    "t:1", "a.png", "a", "Who sold it?", "open", "", "", (REGION,), answers=("Mill",), roles=("answer_value",), task="t"
)


class Sweeping(BoxSource):
    """Takes a look at every image and shows it whole."""

    searches: ClassVar[bool] = True

    def search(self, images: Path, names: Iterable[str], tell: Callable[[str, Detected], object]) -> None:
        for name in names:
            tell(name, Detected((WHOLE,), 3.0, 0))

    def show(self, probes: Sequence[Probe], found: Mapping[str, Detected]) -> Shown:
        boxed = tuple(replace(probe, boxes=found[probe.image].boxes) for probe in probes)
        return Shown(boxed, {"rule": "everything"}, {name: result.ms for name, result in found.items()})


@pytest.fixture
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is registered here is forgotten with the test."""
    for registry in (DETECTORS, BOX_SOURCES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))


def test_annotation_variants_and_detectors_are_sources_of_one_registry(refused: Refused) -> None:
    register_detectors()
    assert set(BOX_SOURCES) >= {"annotation", *VARIANTS, *DETECTORS, "rapidocr", "easyocr", "tesseract"}
    assert all("at least" in DETECTORS.get(name).rule for name in DETECTORS)
    refused("unknown box source 'jiter_light'; did you mean 'jitter_light'", check_source, "jiter_light")
    refused("unknown box source 'zzz'; known: annotation", show_boxes, [PROBE], "zzz", Path("."))


def test_somebody_elses_source_is_searched_shown_and_billed(registries: None) -> None:
    BOX_SOURCES.add("sweeping", Sweeping())
    check_source("sweeping")
    shown = show_boxes([PROBE], "sweeping", Path("."))
    assert (shown.probes[0].boxes, shown.facts, shown.ms) == ((WHOLE,), {"rule": "everything"}, {"a.png": 3.0})
    with BoxesBeside("sweeping", Path("."), [PROBE]) as beside:
        assert beside.detects
        beside.wait()
        assert beside.shown([PROBE]) == shown


def test_a_detector_that_comes_late_is_a_source(registries: None, refused: Refused) -> None:
    register_detectors()  # those that are there already

    class Late:
        name: ClassVar[str] = "late"
        rule: ClassVar[str] = "at least something"

        @classmethod
        def require(cls) -> str:
            raise SightlineError("late is not installed; wait")

    detectors_by_name: dict[str, Any] = DETECTORS._entries
    detectors_by_name["late"] = Late
    register_detectors()
    assert "late" in BOX_SOURCES
    refused("late is not installed; wait", check_source, "late")


def test_the_annotation_leaves_probes_as_they_are() -> None:
    shown = show_boxes([PROBE, replace(PROBE, boxes=(WHOLE,))], "annotation", Path("."))
    assert [probe.visible_boxes for probe in shown.probes] == [(REGION,), (WHOLE,)]
    assert (shown.facts, shown.ms) == ({}, None)


def test_a_noise_variant_states_its_rule() -> None:
    for variant, noise in VARIANTS.items():
        shown = show_boxes([PROBE], variant, Path("."))
        assert shown.facts["rule"] == {**asdict(noise), "seed": SEED}
        assert (shown.facts["probes"], shown.ms, shown.probes[0].regions) == (1, None, (REGION,))


def test_regions_of_open_questions_are_shown_by_the_file_or_a_source_that_is_an_oracle() -> None:
    for source, boxes in (("annotation", ()), ("gt", (REGION,)), ("missing", ())):
        (probe,) = show_boxes([OPEN], source, Path()).probes
        assert (probe.visible_boxes, probe.regions) == (boxes, (REGION,)), source
    assert replace(OPEN, boxes=(SHOWN,)).visible_boxes == (SHOWN,)
    assert (OPEN.visible_boxes, PROBE.visible_boxes) == ((), (REGION,))


def test_a_detector_that_reads_finds_what_it_is_sure_enough_of() -> None:
    class Reader(FindsByReading):
        LEAST = 0.5

        def read(self, image: np.ndarray) -> list[FoundText]:
            return [FoundText((), sure) for sure in (0.49, 0.5, 0.9)]

    found = Reader().find(np.zeros((1, 1, 3), np.uint8))
    assert [finding.confidence for finding in found] == [0.5, 0.9]
    assert issubclass(detectors.EasyOcr, FindsByReading)
    assert issubclass(detectors.Tesseract, FindsByReading)


@dataclass(frozen=True)
class Watching(Selector):
    """Keeps the first tokens, and every view that it was given."""

    seen: list[TokenView] = field(default_factory=list)

    name: ClassVar[str] = "watching"
    reads_boxes: ClassVar[bool | None] = True

    def select(self, view: TokenView, k: int) -> Selection:
        self.seen.append(view)
        return Selection(torch.arange(k))


def test_a_selector_sees_regions_of_yes_no_probes_and_nothing_of_what_open_questions_know(subject: Subject) -> None:
    backbone, watching = subject.backbone, Watching()
    (encoded,) = backbone.encode([backbone.preprocess(subject.image(0))])
    arm = replace(parse_arm("random:0.5"), selector=watching)
    other = replace(OPEN, answers=("Lane", "Road"), decoy="Mill", roles=("context",), regions=(SHOWN,))
    for probe in (PROBE, OPEN, other):
        SelectStep(backbone)(encoded, backbone.prompt(probe.question, "sold"), probe, arm)
    binary, one, same = watching.seen
    assert binary.boxes.tolist() == [list(REGION)]
    assert one.boxes.tolist() == []
    for name in ("tokens", "cells", "query", "boxes"):
        assert torch.equal(getattr(one, name), getattr(same, name)), name
    assert (one.key, one.probe_id, one.layout) == (same.key, same.probe_id, same.layout)


def boxes(values: list[list[float]]) -> tuple[Box, ...]:
    return tuple((a, b, c, d) for a, b, c, d in values)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_golden_vector_and_every_row_of_the_reference_to_the_last_bit(data: Path, variant: str) -> None:
    misc = json.loads((data / "protocol" / "golden_json" / "misc.json").read_text())
    made = simulate(((0.41, 0.305, 0.47, 0.333),), "textocr-a:hard-small-pos", variant)
    assert made.boxes == boxes(misc["box_sources"][variant])
    folder = data / "golden_e2e" / "inputs" / "box_robustness"
    with gzip.open(folder / f"{variant}.jsonl.gz", "rt", encoding="utf-8") as lines:
        recorded: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert len(recorded) == 104
    probes = []
    for row in recorded:
        oracle = boxes(row["oracle_evidence_regions"])
        found = simulate(oracle, row["sample_id"], variant)
        assert found.boxes == boxes(row["evidence_regions"])
        assert found.found == row["box_detector_kept_oracle_count"]
        best = best_ious(oracle, found.boxes)
        assert sum(best) / len(best) == pytest.approx(row["box_detector_mean_best_iou"], abs=1e-15)
        probes.append(replace(PROBE, id=row["sample_id"], regions=oracle, boxes=found.boxes))
    summary = json.loads((folder / "summary.json").read_text())
    expected = next(entry for entry in summary if entry["variant"] == variant)
    quality = BoxQuality.of(probes)
    assert quality.boxes_per_probe == pytest.approx(expected["mean_observed_boxes"])
    assert quality.best_iou == pytest.approx(expected["mean_best_iou"], abs=1e-12)
    assert quality.empty_rate == expected["missing_box_rate"]


def test_adjusted_coverage_counts_lost_regions_as_uncovered() -> None:
    left: Box = (0.0, 0.0, 0.5, 1.0)
    assert iou(left, left) == 1.0
    assert iou(left, (0.5, 0.0, 1.0, 1.0)) == iou((0.5, 0.5, 0.5, 0.5), (0.5, 0.5, 0.5, 0.5)) == 0.0
    assert iou(left, (0.25, 0.0, 0.75, 1.0)) == pytest.approx(1 / 3)
    left_over: list[tuple[Box, ...]] = [(WHOLE, (0, 0, 1, 0.5)), (WHOLE,), ()]
    facts = ({"variant": "drop_40pct", "kept": len(regions), "of": 2} for regions in left_over)
    probes = [
        replace(OPEN, id=f"t:{number}", regions=regions, extra={"region_noise": noise})
        for number, (regions, noise) in enumerate(zip(left_over, facts, strict=True))
    ]
    found = adjusted_coverage(probes, {"t:0": 0.9, "t:1": 0.5})["t"]
    assert (found.probes, found.with_regions, found.retention) == (3, pytest.approx(2 / 3), pytest.approx(0.5))
    assert (found.coverage, found.adjusted) == pytest.approx((0.7, 0.35))


corner = st.floats(0.0, 0.98)


@given(st.lists(st.tuples(corner, corner, st.floats(0.001, 1.0), st.floats(0.001, 1.0)), max_size=4), st.text())
def test_simulated_boxes_stay_in_the_image(places: list[tuple[float, float, float, float]], probe_id: str) -> None:
    oracle = tuple((x, y, min(1.0, x + w), min(1.0, y + h)) for x, y, w, h in places)
    for variant, noise in VARIANTS.items():
        found = simulate(oracle, probe_id, variant)
        assert found == simulate(oracle, probe_id, variant)
        assert len(found.boxes) == found.found + noise.spurious
        assert all(0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0 for x1, y1, x2, y2 in found.boxes)


WIDTH, HEIGHT = 1000, 800


def in_fractions(x: float, y: float, w: float, h: float) -> Box:
    return (x / WIDTH, y / HEIGHT, (x + w) / WIDTH, (y + h) / HEIGHT)


PIXELS = [[(100.5, 80.25, 60.0, 20.0), (940.0, 700.0, 60.0, 100.0)], [], [(10.0, 10.0, 0.5, 30.0)]]
PROBES = [
    replace(OPEN, id=f"t:{number}", regions=tuple(in_fractions(*box) for box in drawn), roles=roles)
    for number, (drawn, roles) in enumerate(zip(PIXELS, [("answer_value", "field_label"), (), ()], strict=True))
]


def noisy(variant: str) -> tuple[Probe, ...]:
    return noisy_regions(PROBES, variant, lambda image: (WIDTH, HEIGHT))


@pytest.mark.parametrize("place", range(len(AUDIT_VARIANTS)))
def test_draws_come_in_their_order_from_a_generator_of_the_variant_and_stay_in_the_image(place: int) -> None:
    name, noise = list(AUDIT_VARIANTS.items())[place]
    # Written out once more, in pixels, call by call.
    rng = random.Random(20260717 + place)
    expected: list[list[Box]] = []
    for drawn in PIXELS:
        kept: list[Box] = []
        for x, y, w, h in drawn:
            if rng.random() < noise.drop:
                continue
            centre_x = x + w / 2 + rng.uniform(-noise.jitter, noise.jitter) * w
            centre_y = y + h / 2 + rng.uniform(-noise.jitter, noise.jitter) * h
            half_w, half_h = max(1.0, w * noise.scale) / 2, max(1.0, h * noise.scale) / 2
            left, right = max(0.0, centre_x - half_w), min(float(WIDTH), centre_x + half_w)
            top, bottom = max(0.0, centre_y - half_h), min(float(HEIGHT), centre_y + half_h)
            kept.append(in_fractions(round(left, 2), round(top, 2), round(right - left, 2), round(bottom - top, 2)))
        expected.append(kept)
    for probe, original, others in zip(noisy(name), PROBES, expected, strict=True):
        assert len(probe.regions) == len(others)
        for region, other in zip(probe.regions, others, strict=True):
            assert region == pytest.approx(other, abs=1e-12)
        assert len(probe.roles) in (0, len(probe.regions))
        assert set(probe.roles) <= set(original.roles)
        assert all(0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 for x1, y1, x2, y2 in probe.regions)
        assert probe.visible_boxes == ()


def test_clean_regions_are_the_annotated_and_the_variants_those_of_the_paper(refused: Refused) -> None:
    damaged, bare, _ = noisy("clean")
    assert damaged.regions[0] == pytest.approx(PROBES[0].regions[0], abs=1e-12)
    assert damaged.extra["region_noise"] == {"variant": "clean", "kept": 2, "of": 2}
    assert bare == PROBES[1]
    refused("unknown noise variant 'drop'; choose from clean, jitter_10pct", noisy, "drop")
    assert AUDIT_SEED == 20260717
    assert [(v.jitter, v.drop, v.scale) for v in AUDIT_VARIANTS.values()] == [
        (0, 0, 1), (0.1, 0, 1), (0.25, 0, 1), (0, 0, 0.8), (0, 0, 1.2), (0, 0.2, 1), (0, 0.4, 1), (0.1, 0.2, 1),
        (0.25, 0.4, 1),
    ]  # fmt: skip
