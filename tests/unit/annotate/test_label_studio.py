"""A hundred annotations to Label Studio's format and back, through its own package: configuration, tasks, converters.

Without label-studio-sdk the tests that use it skip; where CI is set they fail.
"""

import json
import os
import random
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sightline.probes.regions import ROLES
from sightline_annotate.campaign import Campaign, read_judgements
from sightline_annotate.files import export_answers, import_answers
from sightline_annotate.items import KINDS, CampaignKind
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from sightline_annotate.label_studio import label_config, label_studio_tasks, read_label_studio
from tests.refusals import Refused
from tests.unit.annotate.sample_campaign import EVIDENCE, HARD_NEGATIVES, SIZE, VIEWS, said, sample_task

COUNT = 100


@pytest.fixture(scope="session")
def sdk() -> Any:
    """Label Studio's ``Converter`` and ``LabelInterface``."""
    try:
        import_module("label_studio_sdk")
    except ImportError:
        if os.environ.get("CI"):
            pytest.fail("label-studio-sdk is not installed; 'make install' installs it", pytrace=False)
        pytest.skip("label-studio-sdk is not installed; 'make install' installs it")
    return SimpleNamespace(
        Converter=import_module("label_studio_sdk.converter").Converter,
        LabelInterface=import_module("label_studio_sdk.label_interface").LabelInterface,
    )


def answered(path: Path, kind: CampaignKind) -> Campaign:
    """A hundred annotations in all: of a first and a second person, and of a third about what they differ in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    task = sample_task(path, 60, kind, second=0.5)
    rng = random.Random(7)
    answers = [
        (pass_, who, item.id, _answer(kind, rng))
        for pass_, who in ((FIRST, "ann"), (SECOND, "bob"))
        for item in task.items
        if pass_ == FIRST or item.second
    ]
    task.journal.append_all(answers)
    differing = [each.item.id for each in read_judgements(task) if each.disputed]
    task.journal.append_all(
        (ADJUDICATION, "carol", name, _answer(kind, rng)) for name in differing[: COUNT - len(answers)]
    )
    assert sum(len(each.given) for each in read_judgements(task)) == COUNT
    return task


def _answer(kind: CampaignKind, rng: random.Random) -> dict[str, Any]:
    decision = rng.choice(["", *kind.field(kind.decision).answers[1:]])
    answer = said(kind, decision, **{name: rng.choice(["", "ä “quoted” <note>\n2"]) for name, _ in kind.remarks})
    if kind.typed and answer[kind.decision] != kind.typed[1]:
        answer[kind.typed[0]] = ""
    if kind.draws_boxes:
        answer["boxes"] = []
        for _ in range(rng.randrange(1, 5)):
            x, y = rng.uniform(0, 0.8), rng.uniform(0, 0.8)
            region = [x, y, x + rng.uniform(0.05, 0.2), y + rng.uniform(0.05, 0.2)]
            role, text = rng.choice(list(ROLES)), rng.choice(["", "1,000 €"])
            answer["boxes"].append({"region": region, "role": role, "text": text})
    return kind.check(answer, confirmed=True)


def spoken(task: Campaign) -> dict[tuple[str, str], tuple[str, dict[str, Any]]]:
    """Who said what, without free texts that were left empty."""
    return {
        (entry.pass_, entry.item): (entry.who, {name: value for name, value in (entry.fields or {}).items() if value})
        for entry in task.journal.current()
    }


def same(one: Any, two: Any) -> bool:
    """Equal, numbers up to the last digits that percent take."""
    if isinstance(one, float):
        return one == pytest.approx(two, abs=1e-12)
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(same(one[key], two[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(map(same, one, two))
    return bool(one == two)


@pytest.mark.parametrize("converted", [False, True])
@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_a_hundred_annotations_come_back_as_they_went(
    kind: CampaignKind, converted: bool, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """As they were written, and as Label Studio's own converter writes them."""
    task = answered(tmp_path / "one" / "task", kind)
    export_answers(task, "label-studio", tmp_path / "out.json", "final")
    file = tmp_path / "out.json"
    if converted:
        converter = request.getfixturevalue("sdk").Converter(str(tmp_path / "out.xml"), None)
        converter.convert_to_json(str(file), str(tmp_path / "json"), is_dir=False)
        file = tmp_path / "json" / "result.json"
    (tmp_path / "two").mkdir()
    back = sample_task(tmp_path / "two" / "task", 60, kind, second=0.5)
    assert import_answers(back, read_label_studio(back, file), None) == COUNT
    assert same(spoken(task), spoken(back))
    assert import_answers(back, read_label_studio(back, file), None) == 0, "a second import adds nothing"


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_label_studio_accepts_configuration_tasks_and_annotations(kind: CampaignKind, sdk: Any, tmp_path: Path) -> None:
    interface = sdk.LabelInterface(label_config(kind, VIEWS.get(kind.name, 1)))
    interface.validate()
    tasks = label_studio_tasks(kind, read_judgements(answered(tmp_path / "task", kind)))
    assert len(tasks) == 60
    for task in tasks:
        assert interface.validate_task({"data": task["data"]})
        for annotation in task["annotations"]:
            assert interface.validate_prediction({"result": annotation["result"]}, return_errors=True) == []


def test_label_studios_coco_has_our_boxes_in_pixels(sdk: Any, tmp_path: Path) -> None:
    out, result = tmp_path / "out.json", tmp_path / "converted"
    task = answered(tmp_path / "task", EVIDENCE)
    export_answers(task, "label-studio", out, "final")
    converter = sdk.Converter(str(tmp_path / "out.xml"), None)
    converter.convert_to_coco(str(out), str(result), output_image_dir=str(result), is_dir=False)
    coco = json.loads((result / "result.json").read_text(encoding="utf-8"))
    names = {category["id"]: category["name"] for category in coco["categories"]}
    theirs = [(names[each["category_id"]], *(round(side, 6) for side in each["bbox"])) for each in coco["annotations"]]
    ours = []
    for box in (box for entry in task.journal.current() for box in (entry.fields or {})["boxes"]):
        x1, y1, x2, y2 = box["region"]
        sides = (x1 * SIZE[0], y1 * SIZE[1], (x2 - x1) * SIZE[0], (y2 - y1) * SIZE[1])
        ours.append((box["role"], *(round(side, 6) for side in sides)))
    assert sorted(theirs) == sorted(ours)


def test_label_studios_short_form_has_our_decisions(sdk: Any, tmp_path: Path) -> None:
    out, result = tmp_path / "out.json", tmp_path / "converted"
    task = answered(tmp_path / "task", HARD_NEGATIVES)
    export_answers(task, "label-studio", out, "final")
    sdk.Converter(str(tmp_path / "out.xml"), None).convert_to_json_min(str(out), str(result), is_dir=False)
    rows = json.loads((result / "result.json").read_text(encoding="utf-8"))
    decided = sorted((row["sightline_item"], row["annotator"], row["qc_decision"]) for row in rows)
    assert decided == sorted(
        (each.item, each.who, (each.fields or {})["qc_decision"]) for each in task.journal.current()
    )


Spoil = Callable[[list[dict[str, Any]]], Any]
"""Something that is done to the tasks of an export."""


def _read(tmp_path: Path, spoil: Spoil) -> tuple[Campaign, dict[str, list[Any]]]:
    """Answers of an export after something was done to it; one answer of ann about the first of two items."""
    task = sample_task(tmp_path / "task", 2, EVIDENCE, second=0.0)
    task.journal.append_all([(FIRST, "ann", task.items[0].id, said(EVIDENCE))])
    tasks = label_studio_tasks(EVIDENCE, read_judgements(task))
    spoil(tasks)
    (tmp_path / "file.json").write_text(json.dumps(tasks), encoding="utf-8")
    return task, read_label_studio(task, tmp_path / "file.json")


def _with(change: Spoil) -> Spoil:
    """Something that is done to the results of the first annotation: a box, its text, a status."""
    return lambda tasks: change(tasks[0]["annotations"][0]["result"])


def _noted(**facts: Any) -> Spoil:
    """Other facts of the first annotation."""
    return lambda tasks: tasks[0]["annotations"][0].update(facts)


def test_numbers_stand_for_people_skipped_annotations_for_none_and_rounding_is_brought_back(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    def change(tasks: list[dict[str, Any]]) -> None:
        _noted(completed_by=7)(tasks)
        _with(lambda all: all[0]["value"].update(x=-0.1, width=100.2, y=0, height=100.3))(tasks)

    ((_, fields, who),) = _read(tmp_path / "one", change)[1][FIRST]
    assert (who, fields["boxes"][0]["region"]) == ("7", [0.0, 0.0, 1.0, 1.0])
    _, skipped = _read(tmp_path / "two", _noted(was_cancelled=True))
    assert skipped == {FIRST: [], SECOND: [], ADJUDICATION: []}


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (
            _with(lambda all: all[0]["value"].update(rotation=30)),
            "task 1: item 'item-000': region 'box-0' is a rotated",
        ),
        (
            lambda tasks: tasks[0]["data"].clear(),
            "task 1 is not as Label Studio writes it: 'sightline_item' is missing",
        ),
        (lambda tasks: tasks[1]["data"].update(sightline_item="other"), "has no item 'other'"),
        (_with(lambda all: all.pop()), "task 1: item 'item-000': 'How did it go?' is not answered yet"),
        (lambda tasks: tasks.__setitem__(0, 7), "task 1 is not as Label Studio writes it: a value"),
        (_with(lambda all: all.append({**all[0], "id": "p", "type": "polygonlabels"})), "'p' is of the type 'polygon"),
        (_with(lambda all: all.append({"type": "relation"})), "a result is of the type 'relation'"),
        (_with(lambda all: all[0].update(image_rotation=90)), "'box-0' is on the page turned by 90"),
        (_with(lambda all: all[0].update(original_width=640)), "picture of 640 x 80 pixels, the item's has 120 x 80"),
        (_with(lambda all: all[0].update(to_name="image_2")), "'box-0' is on image_2"),
        (_with(lambda all: all[0]["value"]["rectanglelabels"].append("question")), "'box-0' has 2 labels; keep one"),
        (_with(lambda all: all.append(all[0])), "region 'box-0' is there twice"),
        (_with(lambda all: all.append(all[1])), "text of region 'box-0' is there twice"),
        (_with(lambda all: all[1].update(id="other")), "region 'other' has a text and no box"),
        (_with(lambda all: all[0]["value"].update(x=-400, width=450)), "'box-0' lies outside the page: [-4.0"),
        (_with(lambda all: all[0]["value"].update(height=4000)), "'box-0' lies outside the page: [0.1"),
        (_with(lambda all: all[0]["value"].update(x=10**400)), "task 1 is not as Label Studio writes it: a value"),
        (_with(lambda all: all[-1]["value"]["choices"].append("uncertain")), "'status' has 2 answers; keep one"),
        (_with(lambda all: all.append(all[-1])), "'status' is answered twice"),
        (lambda tasks: tasks.append(tasks[0]), "task 3: item 'item-000' is that of task 1 already"),
        *((_noted(completed_by={"email": name}), f"{name!r} is not a name") for name in ("a\x07b", "a\u202eb", " ")),
    ],
)
def test_what_is_not_carried_over_is_refused_by_item_and_region(
    tmp_path: Path, spoil: Any, words: str, refused: Refused
) -> None:
    refused(words, lambda: import_answers(*_read(tmp_path, spoil), None))


def test_a_file_that_is_no_export_is_one_line(tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task", 2, EVIDENCE)
    for text, words in (("[" * 100_000, "cannot read"), ("{}", "is not a list of tasks")):
        (tmp_path / "file.json").write_text(text, encoding="utf-8")
        refused(words, read_label_studio, task, tmp_path / "file.json")
