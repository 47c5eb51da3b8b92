"""Evidence for open questions: regions with roles, from another question file or from the words of an OCR engine.

They are what coverage is audited against. No selector sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from sightline.core.probe import Box, Probe
from sightline.probes.answer_spans import find_span, line_context
from sightline.probes.region_records import ImageRegions
from sightline.probes.roles import ANSWER, CONTEXT

SizeOf = Callable[[str], tuple[int, int]]


@dataclass(frozen=True)
class Evidence:
    """Regions in fractions of the image, and the role of each."""

    regions: tuple[Box, ...]
    roles: tuple[str, ...]


def with_evidence(probes: Iterable[Probe], found: Mapping[str, Evidence]) -> tuple[Probe, ...]:
    """The probes with the evidence that was found for their ids; the others as they are."""
    return tuple(
        replace(probe, regions=found[probe.id].regions, roles=found[probe.id].roles) if probe.id in found else probe
        for probe in probes
    )


def evidence_of_questions(probes: Iterable[Probe], others: Sequence[Probe]) -> dict[str, Evidence]:
    """What the same questions have in another file: those with the same id, else those of the same image and text."""
    by_id = {other.id: other for other in others if other.regions}
    by_text = {(other.image_id, other.question): other for other in others if other.regions}
    found = {}
    for probe in probes:
        other = by_id.get(probe.id) or by_text.get((probe.image_id, probe.question))
        if other is not None:
            found[probe.id] = Evidence(other.regions, other.roles or (ANSWER,) * len(other.regions))
    return found


def evidence_of_words(
    probes: Iterable[Probe], records: Sequence[ImageRegions], size_of: SizeOf | None = None
) -> dict[str, Evidence]:
    """A region for every word of the answer, where it was found among the words of its image.

    Parameters
    ----------
    size_of: width and height of an image in pixels. With it, words beside the answer on its line become regions too.
    """
    by_name = _by_name(records)
    found = {}
    for probe in probes:
        record = by_name.get(probe.image) or by_name.get(_stem(probe.image)) or by_name.get(probe.image_id)
        span = None if record is None else find_span([word.text for word in record.words], probe.answers)
        if record is None or span is None:
            continue
        context: list[int] = []
        if size_of is not None:
            width, height = size_of(probe.image)
            pixels = [(x1 * width, y1 * height, x2 * width, y2 * height) for x1, y1, x2, y2 in _boxes(record)]
            context = line_context(pixels, span.words)
        chosen = [*span.words, *context]
        roles = (ANSWER,) * span.count + (CONTEXT,) * len(context)
        found[probe.id] = Evidence(tuple(record.words[place].box for place in chosen), roles)
    return found


def _boxes(record: ImageRegions) -> list[Box]:
    return [word.box for word in record.words]


def _by_name(records: Iterable[ImageRegions]) -> dict[str, ImageRegions]:
    """Records by the names under which a probe may know their image; the most specific name wins."""
    found: dict[str, ImageRegions] = {}
    for record in records:
        for name in (record.image, record.image_id, _stem(record.image)):
            found.setdefault(name, record)
    return found


def _stem(image: str) -> str:
    return PurePosixPath(image).stem
