"""GSR-Bench: the two-object files of What'sUp with COCO's boxes, as hand-made copies of their layout."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest

from sightline.probes import read_probes
from sightline.probes.annotations import detect_format, load_regions
from sightline.probes.formats.gsr import ALIASES, PHRASES, Family, category_of, parse_relation, read_instances
from tests.refusals import Refused
from tests.unit.probes.formats.pages import paint
from tests.unit.probes.test_command import output, refusal

ROWS: list[Any] = [
    [139, "A photo of a dog to the left of a bench", "A photo of a dog to the right of a bench"],
    [139, "A photo of a sofa above a dog", "A photo of a sofa below a dog"],
    [724, "A photo of a kite above a dog", "A photo of a kite below a dog"],
]


def object_(image: int, category: int, box: Sequence[float], crowd: int = 0) -> dict[str, Any]:
    area = box[2] * box[3]
    return {"image_id": image, "category_id": category, "bbox": box, "area": area, "iscrowd": crowd}


INSTANCES = {
    "images": [
        {"id": 139, "file_name": "000000000139.jpg", "width": 1000, "height": 800},
        {"id": 724, "file_name": "000000000724.jpg", "width": 1000, "height": 800},
    ],
    "categories": [{"id": 1, "name": "dog"}, {"id": 2, "name": "bench"}, {"id": 3, "name": "couch"}],
    "annotations": [
        object_(139, 1, [10, 20, 30, 40]),
        object_(139, 1, [100, 80, 200, 160]),
        object_(139, 1, [0, 0, 1000, 800], crowd=1),
        object_(139, 2, [500, 400, 300, 200]),
        object_(139, 3, [0, 0, 100, 80]),
        object_(724, 1, [0, 400, 100, 80]),
    ],
}
DOG, BENCH, COUCH = (0.1, 0.1, 0.3, 0.3), (0.5, 0.5, 0.8, 0.75), (0.0, 0.0, 0.1, 0.1)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    rows, instances = tmp_path / "coco_qa_two_obj.json", tmp_path / "instances_val2017.json"
    rows.write_text(json.dumps(ROWS))
    instances.write_text(json.dumps(INSTANCES))
    for image in INSTANCES["images"]:
        paint(tmp_path / "val2017" / str(image["file_name"]))
    return rows, instances


def test_each_caption_is_a_question_about_subject_and_object(files: tuple[Path, Path]) -> None:
    rows, instances = files
    assert detect_format(rows) == "gsr"
    ingest = load_regions(rows, instances=instances)
    assert [(probe.id, probe.label, probe.kind, probe.question) for probe in ingest.probes] == [
        ("gsr-0001:yes", "yes", "left_right", "Is the dog to the left of the bench?"),
        ("gsr-0001:no1", "no", "left_right", "Is the dog to the right of the bench?"),
        ("gsr-0002:yes", "yes", "vertical", "Is the sofa above the dog?"),
        ("gsr-0002:no1", "no", "vertical", "Is the sofa below the dog?"),
        ("gsr-0003:yes", "yes", "vertical", "Is the kite above the dog?"),
        ("gsr-0003:no1", "no", "vertical", "Is the kite below the dog?"),
    ]
    assert [probe.regions for probe in ingest.probes[::2]] == [(DOG, BENCH), (COUCH, DOG), ((0.0, 0.5, 0.1, 0.6),)]
    positive, negative = ingest.probes[:2]
    assert negative.target_text == "the dog to the right of the bench"
    assert negative.source_text == "the dog to the left of the bench"
    assert negative.regions == positive.regions
    assert {key: negative.extra[key] for key in ("subject", "relation", "object", "evidence")} == {
        "subject": "dog", "relation": "to the right of", "object": "bench", "evidence": ["subject", "object"],
    }  # fmt: skip
    assert ingest.counts.questions_without_both_boxes == 2
    assert ingest.probes[4].extra["evidence"] == ["object"]
    assert load_regions(rows).counts.questions_without_both_boxes == 6


def test_the_source_names_both_files_without_their_folders(files: tuple[Path, Path], tmp_path: Path) -> None:
    rows, instances = files
    ingest = load_regions(rows, instances=instances)
    assert (ingest.source["annotations"], ingest.source["instances"]) == (rows.name, instances.name)
    assert ingest.source["instances_digest"].startswith("sha256:")
    assert str(tmp_path) not in json.dumps(ingest.source)


def test_captions_without_a_relation_are_counted(files: tuple[Path, Path]) -> None:
    rows, _ = files
    rows.write_text(json.dumps([*ROWS, [724, "A photo of a dog", "A photo of a dog above a bench"]]))
    ingest = load_regions(rows)
    assert (ingest.counts.captions_without_relation, ingest.probes[-1].id) == (1, "gsr-0003:no1")


def test_images_of_visual_genome_are_named_by_their_id(tmp_path: Path) -> None:
    genome = tmp_path / "vg_qa_two_obj.json"
    genome.write_text(json.dumps([["2317", "A photo of a cup left of a fork", "A photo of a cup right of a fork"]]))
    probe = load_regions(genome).probes[0]
    assert (probe.image, probe.question) == ("2317.jpg", "Is the cup to the left of the fork?")
    coco = genome.rename(tmp_path / "coco_qa_two_obj.json")
    assert load_regions(coco).probes[0].image == "000000002317.jpg"


@pytest.fixture
def build(files: tuple[Path, Path], tmp_path: Path) -> list[Any]:
    """Words of the command that writes gsr.jsonl."""
    given = ["--annotations", files[0], "--format-option", f"instances={files[1]}"]
    return ["build", "--format", "gsr", *given, "--out", tmp_path / "gsr.jsonl", "--images", tmp_path / "val2017"]


def test_build_writes_the_questions_as_they_are(build: list[Any], files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "gsr.jsonl"
    text = output(*build)
    assert "read         2 images, 5 boxes, 2 questions without both boxes" in text
    assert "built        6 probes (3 yes, 3 no) from 2 images of 500 asked for\n" in text
    found = read_probes(out)
    assert found.probes == load_regions(files[0], instances=files[1], images=tmp_path / "val2017").probes
    assert found.construction == {"name": "gsr", "seed": 17, "limit_images": 500, "shuffle_images": False}
    assert "2 left_right, 4 vertical" in output("show", out)


def test_build_takes_fewer_rows_and_leaves_out_images(build: list[Any], tmp_path: Path) -> None:
    excluded = tmp_path / "ids.txt"
    for option in (("--format-option", "rows=2"), ("--limit", 1)):
        assert "4 probes (2 yes, 2 no) from 1 images" in output(*build, *option)
    excluded.write_text("139\n")
    said = output(*build, "--exclude", excluded)
    assert "2 probes (1 yes, 1 no) from 1 images of 500 asked for; 1 images excluded" in said
    excluded.write_text("139\n724\n")
    assert refusal(*build, "--exclude", excluded).endswith("gave a probe (2 excluded)")


def test_options_about_words_are_refused(files: tuple[Path, Path], tmp_path: Path) -> None:
    for unfit, says in (
        (("--max-area", 1), "format gsr brings its own questions; --max-area is about words"),
        (("--no-unique",), "--no-unique is about words"),
        (("--version", "strict-v3"), "--version is about words"),
        (("--lines",), "--lines is about words"),
        (("--layout", "artifact"), "layout is that of hard pairs"),
        (("--profile", "artifact"), "layout is that of hard pairs"),
    ):
        out = tmp_path / "gsr.jsonl"
        assert says in refusal("build", "--annotations", files[0], "--no-check-images", "--out", out, *unfit)


def test_objects_become_regions(files: tuple[Path, Path], tmp_path: Path) -> None:
    given = ["--annotations", files[0], "--format-option", f"instances={files[1]}"]
    output("regions", *given, "--out", tmp_path / "r.jsonl")
    (first, _) = load_regions(tmp_path / "r.jsonl").records
    assert [word.text for word in first.words] == ["dog", "dog", "bench", "couch"]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ([*ROWS, [5, "A dog above a bench", "A dog below a bench"]], "row 4: instances_val2017.json has no image 5"),
        ([ROWS[0], [139, "only one"]], "row 2: expected [image id, correct caption, wrong caption"),
        ([[139, "A bench on the left", "A bench on the right"]], "no caption relates two things,"),
        ({}, "needs a list of rows"),
    ],
)
def test_what_is_wrong_has_its_row(files: tuple[Path, Path], content: Any, says: str, refused: Refused) -> None:
    files[0].write_text(json.dumps(content))
    refused(says, load_regions, files[0], file_format="gsr", instances=files[1])


@pytest.mark.parametrize(
    ("caption", "parts"),
    [
        ("A photo of a dog to the left of a bench", ("dog", "to the left of", "bench", "left_right")),
        ("A photo of an potted plant to the right of an umbrella.",
         ("potted plant", "to the right of", "umbrella", "left_right")),
        ("a cup on the left side of the laptop", ("cup", "to the left of", "laptop", "left_right")),
        ("A photo of a bowl under a table", ("bowl", "below", "table", "vertical")),
        ("The cat is on top of the car.", ("cat", "on top of", "car", "vertical")),
        ("The spoon is in the cup", ("spoon", "inside", "cup", "topology")),
        ("A mug on a desk", ("mug", "on", "desk", "topology")),
        ("The man is next to the horse", ("man", "next to", "horse", "proximity")),
        ("A photo of a truck in front of a house", ("truck", "in front of", "house", "depth")),
        ("a boy sitting on a wall", ("boy", "sitting on", "wall", "interaction")),
        *((caption, None) for caption in ("A photo of a bench", "", "above a bed", "A photo of a bench on the left")),
    ],
)  # fmt: skip
def test_a_caption_is_taken_apart_where_it_is_about_two_things(caption: str, parts: tuple[str, ...] | None) -> None:
    assert parse_relation(caption) == parts


def test_every_family_has_a_phrase_that_reads_back() -> None:
    assert {family for _, family in PHRASES.values()} == set(get_args(Family))
    for phrase, (asked, family) in PHRASES.items():
        assert parse_relation(f"a fork {phrase} a plate") == ("fork", asked, "plate", family)
        assert PHRASES[asked] == (asked, family)


def test_a_thing_is_a_category_an_alias_of_one_or_the_longest_one_in_its_name() -> None:
    assert not set(ALIASES) & set(ALIASES.values())
    categories = (
        "person", "bear", "teddy bear", "bench", "dining table", "tv", "dog", "hot dog", "couch", "potted plant",
    )  # fmt: skip
    things = {
        "dog": "dog", "Teddy  Bear": "teddy bear", "large brown teddy bear": "teddy bear", "sofa": "couch",
        "old woman": "person", "two dogs": "dog", "plant": "potted plant", "hot dog stand": "hot dog",
        "television": "tv", "giraffe": None, "dogma": None,
    }  # fmt: skip
    assert {thing: category_of(thing, categories) for thing in things} == things


def coco(**image: Any) -> dict[str, Any]:
    boxes = [
        (1, [0, 0, 10, 10], 60.0),
        (1, [50, 100, 30, 60], 55.0),
        (2, [10, 20, 40, 40], 900.0),
        (2, [5, 5, 0, 0], 0.0),
    ]
    annotations = [object_(139, category, box) | {"area": area} for category, box, area in boxes]
    images = [{"id": 139, "file_name": "000000000139.jpg", "width": 100, "height": 200, **image}, {"id": 7}]
    crowd = object_(139, 1, [0, 0, 100, 200], crowd=1)
    return INSTANCES | {"images": images, "annotations": [*annotations, crowd]}


def test_the_largest_object_is_by_its_outline_and_never_a_crowd(tmp_path: Path) -> None:
    file = tmp_path / "i.json"
    file.write_text(json.dumps(coco()))
    images, categories = read_instances(file, ["139", "404"])
    assert (categories, list(images)) == (("dog", "bench", "couch"), ["139"])
    image = images["139"]
    assert (image.name, image.width, image.height, len(image.objects)) == ("000000000139.jpg", 100, 200, 3)
    dog = image.largest("dog")
    assert dog is not None
    assert dog.box == (0.0, 0.0, 0.1, 0.05)
    assert image.largest("cat") is None


def test_other_files_than_cocos_instances_are_refused(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "i.json"
    for content, says in (
        ("[]", "not a COCO instances file: it needs lists"), ("{", "not a JSON document"),
        ('{"a": 1}', "'categories' is missing"),
        (json.dumps(coco() | {"categories": []}), "image 139 has an object of no category"),
        *((json.dumps(coco(width=no)), "the width of image 139") for no in (0, -5, math.inf, 10**400, "wide", None)),
    ):  # fmt: skip
        file.write_text(content)
        refused(says, read_instances, file, ["139"])
