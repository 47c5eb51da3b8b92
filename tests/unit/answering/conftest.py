"""A few images and a question about each."""

from collections.abc import Sequence

import pytest

from sightline.answering.materialise import all_needs
from sightline.arms.arm import Arm
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.cost.request import Request
from sightline.cost.subject import Subject

PROBES = 4


def tiny(config: str) -> Subject:
    return Subject.of(Request("prefill", config=config, device="cpu", dtype="float32"))


def image_of(subject: Subject, number: int = 0, arms: Sequence[Arm] = ()) -> Encoded:
    """A made-up image, encoded by itself with what the arms read."""
    (encoded,) = subject.backbone.encode(
        [subject.backbone.preprocess(subject.image(number))], all_needs(arms, subject.backbone)
    )
    return encoded


@pytest.fixture
def images(subject: Subject) -> list[Encoded]:
    subject.backbone.language.executor = None
    return [image_of(subject, i) for i in range(PROBES)]


@pytest.fixture
def probes(subject: Subject) -> list[Probe]:
    return [subject.probe(i) for i in range(PROBES)]
