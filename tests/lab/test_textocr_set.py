"""Held-out scenes: drawn the same every time, disjoint from training, shipped as locked."""

import hashlib
import json

import numpy as np
import pytest
from PIL import Image

from lab.scenes.compose import font_files
from lab.scenes.lexicon import split_of, vocabulary
from lab.scenes.open_set import annotate, write_scenes
from lab.scenes.page_designs import DESIGNS
from sightline.checks.demo import asset
from sightline.errors import SightlineError
from sightline.probes import build_hard_pairs, load_regions, read_probes, verify_lock
from sightline.probes.hard_pairs import HardPairRules
from sightline.probes.images import image_digests

SPLITS = ("development", "confirmation")
IMAGES = 200


def digest(document):
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def shipped(split):
    return asset("scenes", split)


@pytest.mark.parametrize("split", SPLITS)
def test_drawing_again_gives_the_shipped_annotations(split):
    document = json.loads((shipped(split) / "annotations.json").read_text(encoding="utf-8"))
    assert len(document["imgs"]) == IMAGES
    assert {info["kind"] for info in document["imgs"].values()} == set(DESIGNS)
    first = annotate(split, 7)
    assert digest(first) == digest(annotate(split, 7))
    assert all(document["anns"][name] == annotation for name, annotation in first["anns"].items())
    assert all(document["imgToAnns"][name] == words for name, words in first["imgToAnns"].items())


@pytest.mark.parametrize("split", SPLITS)
def test_shipped_set_is_as_locked_and_as_built(split):
    path = shipped(split) / "probes.jsonl"
    found = read_probes(path)
    images = image_digests(shipped(split) / "images", found.images)
    assert len(verify_lock(path, found, images=images).images) == IMAGES
    regions = load_regions(shipped(split) / "annotations.json").records
    rules = HardPairRules(seed=17, limit_images=None, min_area=1e-3, max_area=8e-3)
    assert build_hard_pairs(regions, rules).probes == found.probes


def test_sets_share_nothing():
    sets = [read_probes(shipped(split) / "probes.jsonl") for split in SPLITS]
    assert not set(sets[0].image_ids) & set(sets[1].image_ids)
    sources = [{split_of(probe.source_text) for probe in found.probes} for found in sets]
    assert sources == [{"development"}, {"confirmation"}]
    fonts = [set(font_files(role)) for role in ("train", *SPLITS)]
    words = [set(vocabulary(role)) for role in ("train", *SPLITS)]
    for groups in (fonts, words):
        assert sum(map(len, groups)) == len(set().union(*groups))


def test_written_images_show_the_words(tmp_path):
    document = write_scenes("development", 2, tmp_path)
    assert json.loads((tmp_path / "annotations.json").read_text(encoding="utf-8")) == document
    for image_id, info in document["imgs"].items():
        image = np.asarray(Image.open(tmp_path / "images" / info["file_name"]).convert("L"), dtype=float)
        assert image.shape == (info["height"], info["width"])
        contrast = []
        for name in document["imgToAnns"][image_id]:
            x, y, width, height = document["anns"][name]["bbox"]
            contrast.append(np.ptp(image[int(y) : int(y + height) + 1, int(x) : int(x + width) + 1]))
        assert np.median(contrast) > 80


def test_folder_that_cannot_be_made(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(SightlineError, match="cannot write scenes"):
        write_scenes("development", 1, tmp_path / "file")
