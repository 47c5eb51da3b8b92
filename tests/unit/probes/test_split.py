"""The paper's two splits: tenths of sha1 for yes/no probes, halves of md5 for open questions."""

from __future__ import annotations

import hashlib

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.probe_file import even_side, hash_side, split_probes


def question(number: int, image: str) -> Probe:
    return Probe(f"docvqa:{number}", f"{image}.png", image, "?", "open", "", "", (), answers=("x",), task="docvqa")


def test_md5_halves_by_whether_its_first_eight_digits_are_even() -> None:
    for name in ("docvqa_val_lite:49153", "textvqa_val_lite:34602", "ä"):
        digits = hashlib.md5(name.encode("utf-8")).hexdigest()[:8]
        assert even_side(name) == ("dev" if digits[-1] in "02468ace" else "test")
    sides = [even_side(f"textvqa:{number}") for number in range(2000)]
    assert 900 < sides.count("dev") < 1100


def test_open_questions_are_split_by_probe_or_kept_together_by_image() -> None:
    probes = [question(number, f"i{number % 7}") for number in range(60)]
    by_probe = split_probes(probes, group_by="probe", rule="md5")
    assert all(even_side(probe.id) == side for side, part in by_probe.items() for probe in part)
    by_image = split_probes(probes, rule="md5")
    assert not {p.image_id for p in by_image["dev"]} & {p.image_id for p in by_image["test"]}
    assert sum(map(len, by_probe.values())) == sum(map(len, by_image.values())) == 60


def test_sha1_stays_as_it_was() -> None:
    for name in (f"i{number}" for number in range(40)):
        bucket = int(hashlib.sha1(name.encode()).hexdigest()[:8], 16) % 10
        assert [hash_side(name, tenths) for tenths in (bucket, bucket + 1)] == ["test", "dev"]
    probes = [question(number, f"i{number}") for number in range(40)]
    sides = split_probes(probes, dev_buckets=3)
    assert all(hash_side(probe.image_id, 3) == side for side, part in sides.items() for probe in part)


def test_open_questions_have_no_records() -> None:
    with pytest.raises(SightlineError, match=r"open questions \(docvqa:1\) have no records; group them by image"):
        split_probes([question(1, "a")], group_by="record")
