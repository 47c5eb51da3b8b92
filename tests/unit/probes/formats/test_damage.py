"""Damaged annotation files: read as far as they make sense, or refused in one line, never a traceback."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.probes.annotations import detect_format, load_regions
from tests.unit.probes.test_format_examples import SECTIONS, write_examples

TRIES = 60
NOISE = b'0123456789"<>/,.;{}[]=- \n\xff'


def damaged(content: bytes, rng: random.Random) -> bytes:
    """Cut off somewhere, or with a few bytes changed or missing."""
    if rng.random() < 0.3:
        return content[: rng.randrange(len(content))]
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(data))
        if rng.random() < 0.5:
            data[place] = rng.choice(NOISE)
        else:
            del data[place : place + rng.randint(1, 12)]
    return bytes(data)


@pytest.mark.parametrize("title", SECTIONS)
def test_a_damaged_file_is_read_or_refused_in_one_line(tmp_path: Path, title: str) -> None:
    rng = random.Random(20260720)
    for path in write_examples(tmp_path, title):
        if path.name.startswith("instances_"):
            continue
        name, whole = detect_format(path), path.read_bytes()
        refusals = []
        for _ in range(TRIES):
            path.write_bytes(damaged(whole, rng))
            try:
                load_regions(path, file_format=name)
            except SightlineError as problem:
                refusals.append(str(problem))
        assert refusals
        assert all(path.name in said and "\n" not in said for said in refusals)
