"""Objects of COCO, by what captions call them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes.formats.gsr import ALIASES, category_of, read_instances

CATEGORIES = ("person", "bear", "teddy bear", "bench", "dining table", "tv", "dog", "hot dog", "couch", "potted plant")


@pytest.mark.parametrize(
    ("thing", "category"),
    [
        ("dog", "dog"),
        ("Teddy  Bear", "teddy bear"),
        ("large brown teddy bear", "teddy bear"),
        ("sofa", "couch"),
        ("old woman", "person"),
        ("two dogs", "dog"),
        ("plant", "potted plant"),
        ("hot dog stand", "hot dog"),
        ("television", "tv"),
        ("giraffe", None),
        ("dogma", None),
    ],
)
def test_a_thing_is_its_name_an_alias_or_the_longest_name_in_it(thing: str, category: str | None) -> None:
    assert category_of(thing, CATEGORIES) == category


def test_an_alias_is_never_the_name_of_a_category() -> None:
    assert not set(ALIASES) & set(ALIASES.values())


def instances(**more: Any) -> dict[str, Any]:
    def annotation(category: int, box: list[float], area: float, crowd: int = 0) -> dict[str, Any]:
        return {"image_id": 139, "category_id": category, "bbox": box, "area": area, "iscrowd": crowd}

    return {
        "images": [{"id": 139, "file_name": "000000000139.jpg", "width": 100, "height": 200}, {"id": 7}],
        "categories": [{"id": 18, "name": "dog"}, {"id": 15, "name": "bench"}],
        "annotations": [
            annotation(18, [0, 0, 10, 10], 60.0),
            annotation(18, [50, 100, 30, 60], 55.0),
            annotation(18, [0, 0, 100, 200], 9000.0, crowd=1),
            annotation(15, [10, 20, 40, 40], 900.0),
            annotation(15, [5, 5, 0, 0], 0.0),
        ],
    } | more


def test_the_largest_object_is_by_its_outline_and_never_a_crowd(tmp_path: Path) -> None:
    (tmp_path / "i.json").write_text(json.dumps(instances()))
    images, categories = read_instances(tmp_path / "i.json", ["139", "404"])
    assert categories == ("dog", "bench")
    assert list(images) == ["139"]
    image = images["139"]
    assert (image.name, image.width, image.height, len(image.objects)) == ("000000000139.jpg", 100, 200, 3)
    dog = image.largest("dog")
    assert dog is not None
    assert dog.box == (0.0, 0.0, 0.1, 0.05)
    assert image.largest("cat") is None


@pytest.mark.parametrize(
    ("content", "says"),
    [("[]", "not a COCO instances file"), ("{", "not a JSON document"), ('{"a": 1}', "'categories'")],
)
def test_another_file_is_refused_by_name(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "i.json").write_text(content)
    with pytest.raises(SightlineError, match=rf"i\.json: .*{says}"):
        read_instances(tmp_path / "i.json", ["139"])


@pytest.mark.parametrize("width", [0, 1e400, 10**400, "wide", None])
def test_an_image_without_a_size_is_refused(tmp_path: Path, width: Any) -> None:
    images = [{"id": 139, "file_name": "000000000139.jpg", "width": width, "height": 200}]
    (tmp_path / "i.json").write_text(json.dumps(instances(images=images)))
    with pytest.raises(SightlineError, match=r"i\.json: not a COCO instances file"):
        read_instances(tmp_path / "i.json", ["139"])
