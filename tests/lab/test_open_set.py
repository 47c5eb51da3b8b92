"""Held-out open questions: as locked, drawn again the same, every kind well represented, nothing given away."""

from collections import Counter

import pytest

from lab.reader.open_card import OPEN_DATA
from lab.scenes.lexicon import split_of
from lab.scenes.open_questions import TEMPLATES
from lab.scenes.open_set import WRONG_VIEW, open_set, write_open_set, wrong_images
from lab.scenes.paired_designs import BILL_WORDS
from sightline.checks.demo import asset
from sightline.errors import SightlineError
from sightline.probes import read_probes, verify_lock
from sightline.probes.images import image_digests

SIZES = {"development": 90, "confirmation": 150}


def shipped(split, name="open_probes.jsonl"):
    return read_probes(asset("scenes", split) / name)


@pytest.mark.parametrize("split", SIZES)
def test_shipped_questions_are_as_locked_and_as_drawn(split):
    found = shipped(split)
    images = image_digests(asset("scenes", split) / "open_images", found.images)
    assert len(verify_lock(asset("scenes", split) / "open_probes.jsonl", found, images=images).images) == SIZES[split]
    scenes, probes = open_set(split, SIZES[split])
    assert tuple(probes) == found.probes
    assert tuple(wrong_images(scenes, probes)) == shipped(split, "open_wrong_images.jsonl").probes


@pytest.mark.parametrize("split", SIZES)
def test_every_kind_is_well_represented_and_answers_are_the_splits_own(split):
    found = shipped(split).probes
    kinds = Counter(probe.kind for probe in found)
    assert set(kinds) == set(TEMPLATES)
    assert min(kinds.values()) >= len(found) / 8
    assert {split_of(probe.answers[0]) for probe in found} == {split}
    assert len(set(Counter(probe.image_id for probe in found).values())) == 1


@pytest.mark.parametrize("split", SIZES)
def test_wrong_images_are_other_ones_of_the_set(split):
    right = {probe.id: probe for probe in shipped(split).probes}
    for probe in shipped(split, "open_wrong_images.jsonl").probes:
        assert probe.view == WRONG_VIEW
        assert probe.image != right[probe.id].image
        assert probe.image in {other.image for other in right.values()}
        assert probe.question == right[probe.id].question


def test_new_files_stay_small():
    files = [file for split in SIZES for file in asset("scenes", split).rglob("*") if "open_" in str(file)]
    assert sum(file.stat().st_size for file in files if file.is_file()) < 6e6


def test_the_first_scenes_of_a_set_stay_the_same(tmp_path):
    written = write_open_set("development", 3, tmp_path)
    assert written.probes == shipped("development").probes[:6]
    assert sorted(file.name for file in (tmp_path / "open_images").iterdir()) == sorted(written.images)
    alone = write_open_set("development", 1, tmp_path / "alone")
    assert len(alone.probes) == 2
    assert not (tmp_path / "alone" / "open_wrong_images.jsonl").exists()


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SightlineError, match="cannot write scenes"):
        write_open_set("development", 1, tmp_path / "file")


def test_the_card_names_every_word_that_the_splits_share():
    assert {word for word in BILL_WORDS if f"`{word}`" in OPEN_DATA} == BILL_WORDS
