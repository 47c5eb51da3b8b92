"""Damaged regions: every variant's draws in their order, and what is left of coverage."""

from __future__ import annotations

import random

import pytest

from sightline.boxes.quality import AUDIT_SEED, AUDIT_VARIANTS, adjusted_coverage, noisy_regions
from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError

WIDTH, HEIGHT = 1000, 800


def in_fractions(x: float, y: float, w: float, h: float) -> Box:
    return (x / WIDTH, y / HEIGHT, (x + w) / WIDTH, (y + h) / HEIGHT)


PIXELS = [[(100.5, 80.25, 60.0, 20.0), (940.0, 700.0, 60.0, 100.0)], [], [(10.0, 10.0, 0.5, 30.0)]]
ROLES = [("answer_value", "field_label"), (), ()]
PROBES = [
    Probe(
        f"t:{number}", f"{number}.png", str(number), "?", "open", "", "", tuple(in_fractions(*box) for box in boxes),
        answers=("x",), roles=roles, task="odd" if number % 2 else "even",
    )
    for number, (boxes, roles) in enumerate(zip(PIXELS, ROLES, strict=True))
]  # fmt: skip


def noisy(variant: str) -> tuple[Probe, ...]:
    return noisy_regions(PROBES, variant, lambda image: (WIDTH, HEIGHT))


@pytest.mark.parametrize("place", range(len(AUDIT_VARIANTS)))
def test_draws_come_in_their_order_from_a_generator_of_the_variant(place: int) -> None:
    name = list(AUDIT_VARIANTS)[place]
    noise = AUDIT_VARIANTS[name]
    # Written out once more, in pixels, call by call.
    rng = random.Random(20260717 + place)
    expected: list[list[Box]] = []
    for boxes in PIXELS:
        kept: list[Box] = []
        for x, y, w, h in boxes:
            if rng.random() < noise.drop:
                continue
            centre_x = x + w / 2 + rng.uniform(-noise.jitter, noise.jitter) * w
            centre_y = y + h / 2 + rng.uniform(-noise.jitter, noise.jitter) * h
            half_w, half_h = max(1.0, w * noise.scale) / 2, max(1.0, h * noise.scale) / 2
            left, right = max(0.0, centre_x - half_w), min(float(WIDTH), centre_x + half_w)
            top, bottom = max(0.0, centre_y - half_h), min(float(HEIGHT), centre_y + half_h)
            kept.append(in_fractions(round(left, 2), round(top, 2), round(right - left, 2), round(bottom - top, 2)))
        expected.append(kept)
    found = [probe.regions for probe in noisy(name)]
    assert [len(regions) for regions in found] == [len(regions) for regions in expected]
    for regions, others in zip(found, expected, strict=True):
        for region, other in zip(regions, others, strict=True):
            assert region == pytest.approx(other, abs=1e-12)


def test_the_variants_are_the_papers() -> None:
    assert AUDIT_SEED == 20260717
    assert [(v.jitter, v.drop, v.scale) for v in AUDIT_VARIANTS.values()] == [
        (0, 0, 1), (0.1, 0, 1), (0.25, 0, 1), (0, 0, 0.8), (0, 0, 1.2), (0, 0.2, 1), (0, 0.4, 1), (0.1, 0.2, 1),
        (0.25, 0.4, 1),
    ]  # fmt: skip


def test_regions_stay_in_their_image_and_keep_their_roles() -> None:
    for variant in AUDIT_VARIANTS:
        for probe, original in zip(noisy(variant), PROBES, strict=True):
            assert len(probe.roles) in (0, len(probe.regions))
            assert set(probe.roles) <= set(original.roles)
            assert all(0 <= x1 < x2 <= 1 and 0 <= y1 < y2 <= 1 for x1, y1, x2, y2 in probe.regions)
            assert probe.visible_boxes == ()


def test_clean_regions_are_the_annotated_ones() -> None:
    assert noisy("clean")[0].regions[0] == pytest.approx(PROBES[0].regions[0], abs=1e-12)
    assert noisy("clean")[0].extra["region_noise"] == {"variant": "clean", "kept": 2, "of": 2}
    assert noisy("clean")[1] == PROBES[1]


def test_adjusted_coverage_counts_lost_regions_as_uncovered() -> None:
    probes = [
        Probe(
            f"t:{number}", "a.png", "a", "?", "open", "", "", regions, answers=("x",), task="t",
            extra={"region_noise": {"variant": "drop_40pct", "kept": len(regions), "of": 2}},
        )
        for number, regions in enumerate([((0, 0, 1, 1), (0, 0, 1, 0.5)), ((0, 0, 1, 1),), ()])
    ]  # fmt: skip
    found = adjusted_coverage(probes, {"t:0": 0.9, "t:1": 0.5})["t"]
    assert (found.probes, found.with_regions, found.retention) == (3, pytest.approx(2 / 3), pytest.approx(0.5))
    assert found.coverage == pytest.approx(0.7)
    assert found.adjusted == pytest.approx(0.35)


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(SightlineError, match="unknown noise variant 'drop'; choose from clean, jitter_10pct"):
        noisy("drop")
