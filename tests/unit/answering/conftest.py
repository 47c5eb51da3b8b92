"""A few images and a question about each."""

import pytest

from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.cost.subject import Subject

PROBES = 4


@pytest.fixture
def images(subject: Subject) -> list[Encoded]:
    subject.backbone.language.executor = None
    pixels = [subject.backbone.preprocess(subject.image(i)) for i in range(PROBES)]
    return [subject.backbone.encode([item])[0] for item in pixels]


@pytest.fixture
def probes(subject: Subject) -> list[Probe]:
    return [subject.probe(i) for i in range(PROBES)]
