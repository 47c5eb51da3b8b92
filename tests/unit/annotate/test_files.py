"""Tasks from probes, answers to files and back, sign-off: what a person does at the command line, through it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sightline.controls.text_replacement import ERASE, LABELS, ORIGINAL, REPLACEMENT, SHAM
from sightline.core.probe import Probe
from sightline.probes import write_probes
from sightline.probes.data_rows import read_table
from sightline.probes.typed_rows import read_decision_file, read_typed_rows
from sightline_annotate.campaign import ITEMS, Campaign, open_campaign, read_judgements
from sightline_annotate.files import answers_of, artifact_text, export_answers, import_answers, read_artifact
from sightline_annotate.items import KINDS, CampaignKind, WorkItem
from sightline_annotate.journal import ADJUDICATION, FIRST, SECOND
from tests.command_line import sightline
from tests.refusals import Refused
from tests.unit.annotate.sample_campaign import EVIDENCE, HARD_NEGATIVES, said, sample_task

BOX = (0.2, 0.2, 0.6, 0.4)


def annotate(*words: object) -> list[str]:
    """Lines that a command prints."""
    return sightline("annotate", *words).output.splitlines()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "images"
    folder.mkdir()
    for name in ("a", "b", "c", *(f"r-{version}" for version in (ORIGINAL, SHAM, REPLACEMENT, ERASE))):
        Image.new("RGB", (60, 40), "white").save(folder / f"{name}.png")
    return folder


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A positive and a near miss on each of three images."""
    words = {"a": ("hello", "hallo"), "b": ("stationhouse", "stotionhouse"), "c": ("Tea", "tea")}
    probes = [
        Probe(f"{image}-{label}", f"{image}.png", image, f'"{text}"?', label, text, source, (BOX,))  # type: ignore[arg-type]
        for image, (source, target) in words.items()
        for label, text in (("yes", source), ("no", target))
    ]
    write_probes(tmp_path / "pairs.jsonl", probes)
    return tmp_path / "pairs.jsonl"


@pytest.fixture
def new(pairs: Path, images: Path, tmp_path: Path) -> Callable[..., list[str]]:
    """``annotate new`` of hard negatives, or with other options."""

    def make(**options: object) -> list[str]:
        given = {"kind": "hard-negatives", "probes": pairs, "images": images} | options
        words = [word for name, value in given.items() for word in (f"--{name}", value)]
        return annotate("new", tmp_path / "task", *words)

    return make


WORDS: list[dict[str, Any]] = [
    {"text": "Total", "box": [0.0, 0.0, 0.2, 0.1]},
    {"text": "", "box": [0.5, 0.0, 0.6, 0.1], "reading": "--", "reason": "without a letter or digit",
     "confidence": 0.99},
    *({"text": "", "box": [0.5, y / 10, 0.7, y / 10 + 0.1], "reading": f"12.5{y}", "reason": "unsure",
       "confidence": 0.75} for y in range(1, 5)),
]  # fmt: skip


@pytest.fixture
def dropped(new: Callable[..., Any], tmp_path: Path) -> Campaign:
    """A campaign about five texts of a page that do not count, all of them to be read twice."""
    page = {"image_id": "a", "image": "a.png", "width": 60, "height": 40, "words": WORDS}
    pages = tmp_path / "pages.jsonl"
    pages.write_text("".join(json.dumps(row) + "\n" for row in ({"sightline_regions": 1}, page)))
    new(kind="texts", probes=pages, second=1.0)
    return open_campaign(tmp_path / "task")


def read_as(task: Campaign, *given: str) -> list[Any]:
    """Answers about the first items: a decision, and perhaps what stands there."""
    said = [each.partition(" ")[::2] for each in given]
    return [
        (item, task.kind.check({"decision": decision, "text_in_box": text}, confirmed=True), "")
        for item, (decision, text) in zip(task.items, said, strict=False)
    ]


def test_texts_that_were_dropped_are_shown_with_the_reason(
    dropped: Campaign, new: Callable[..., Any], tmp_path: Path, refused: Refused
) -> None:
    task = dropped
    assert [item.source_text for item in task.items] == ["12.51", "12.52", "12.53", "12.54", "--"]
    shown = task.items[0].shown
    assert "unsure (confidence 0.75)" in shown["question"]
    assert shown["views"][0]["regions"] == ((0.5, 0.1, 0.7, 0.2),)
    pages = tmp_path / "pages.jsonl"
    pages.write_text(json.dumps({"sightline_regions": 1}) + "\n")
    refused("has no text that was dropped", new, kind="texts", probes=pages)


def test_what_people_type_is_their_answer(dropped: Campaign, tmp_path: Path, refused: Refused) -> None:
    task = dropped
    first = ["valid_text", "wrong_text 17.52", "wrong_text 12", "unreadable", "wrong_text"]
    second = ["valid_text", "wrong_text  17.52", "wrong_text 13", "unreadable", "wrong_text"]
    import_answers(task, {FIRST: read_as(task, *first)}, "ann")
    import_answers(task, {SECOND: read_as(task, *second)}, "bob")
    differ = {each.item.id: each.differing for each in read_judgements(task) if each.differing}
    assert differ == {task.items[2].id: ("text_in_box",)}
    third = (task.items[2], {"decision": "wrong_text", "text_in_box": "13"}, "")
    import_answers(task, {ADJUDICATION: [third]}, "carol")
    annotate("sign-off", tmp_path / "task", "--as", "dora", "--out", tmp_path / "signed.jsonl")
    found = [each.text for each in read_decision_file(tmp_path / "signed.jsonl").decisions]
    assert [(each.get("reading"), each.get("text")) for each in found if each] == [
        ("12.51", "12.51"), ("12.52", "17.52"), ("12.53", "13"),
    ]  # fmt: skip
    assert found[1]["box"] == [0.5, 0.2, 0.7, pytest.approx(0.3)]
    refused("you decided 'unreadable', but typed another text", read_as, task, "unreadable 3")


def test_the_lexical_audit_says_what_is_suspicious(new: Callable[..., Any], tmp_path: Path, refused: Refused) -> None:
    matches = "global_other_image_nfkc_casefold_matches"
    for name in ("z-no", "a-no"):
        details = tmp_path / "hard_negative_lexical_details.csv"
        details.write_text(f"sample_id,{matches}\n{name},3\n", encoding="utf-8")
        details.with_name("hard_negative_suspicious_examples.csv").write_text(f"sample_id,reason\n{name},x;y\n")
        if name == "z-no":
            refused("about other probes: 'z-no'", new, audit=tmp_path)
            assert not (tmp_path / "task").exists()
    new(audit=tmp_path)
    item = open_campaign(tmp_path / "task").items[0]
    assert (item.id, item.suspicion, item.facts[matches]) == ("a-no", ("x", "y"), "3")


@pytest.mark.parametrize(
    ("says", "change"),
    [
        ("--images: there is no folder nowhere", {"images": "nowhere"}),
        ("no replaced images; make one with", {"kind": "text-replacement"}),
        ("cannot read nowhere", {"audit": "nowhere"}),
    ],
)
def test_what_no_campaign_is_made_of_is_refused(
    new: Callable[..., Any], tmp_path: Path, says: str, change: dict[str, str], refused: Refused
) -> None:
    refused(says, new, **change)
    assert not (tmp_path / "task").exists()


def test_hard_negatives_speak_for_their_image(new: Callable[..., Any], tmp_path: Path, refused: Refused) -> None:
    assert new()[0].endswith("3 items in 1 batches")
    refused("exists already", new)
    task = open_campaign(tmp_path / "task")
    assert [item.id for item in task.items] == ["c-no", "b-no", "a-no"], "suspicious, then by difficulty"
    assert task.items[0].suspicion == ("source_target_same",)
    assert task.by_id["a-no"].probes == ("a-yes", "a-no")
    assert task.by_id["a-no"].facts["edit_distance"] == 1


@pytest.fixture
def only_item(new: Callable[..., Any], tmp_path: Path) -> Callable[..., WorkItem]:
    """The one item of a campaign about some probes."""

    def make(probes: list[Probe], **options: object) -> WorkItem:
        write_probes(tmp_path / "probes.jsonl", probes)
        new(probes=tmp_path / "probes.jsonl", **options)
        (item,) = open_campaign(tmp_path / "task").items
        return item

    return make


def test_of_equally_difficult_words_those_among_larger_ones_come_first(new: Callable[..., Any], tmp_path: Path) -> None:
    ranks = {"a": 2, "b": 9, "c": 5}
    probes = [
        Probe(
            f"{image}-no", f"{image}.png", image, "?", "no", "hallo", "hello", (BOX,), extra={"token_area_rank": rank}
        )
        for image, rank in ranks.items()
    ]
    write_probes(tmp_path / "ranked.jsonl", probes)
    new(probes=tmp_path / "ranked.jsonl")
    assert [item.id for item in open_campaign(tmp_path / "task").items] == ["b-no", "c-no", "a-no"]


def test_text_replacement_shows_four_versions(only_item: Callable[..., WorkItem], tmp_path: Path) -> None:
    replaced = [
        Probe(
            f"r:{version}-{asked}", f"r-{version}.png", "r", "?", label, text, "word", (BOX,), kind=f"{version}_{asked}"
        )
        for version, both in LABELS.items()
        for asked, text, label in zip(("source", "target"), ("word", "ward"), both, strict=True)
    ]
    screening = tmp_path / "screening.csv"
    screening.write_text("image_id,passed\nr,False\n", encoding="utf-8")
    item = only_item(replaced, kind="text-replacement", audit=screening)
    assert [view.image for view in item.views] == [f"r-{v}.png" for v in (ORIGINAL, SHAM, REPLACEMENT, ERASE)]
    assert (item.source_text, item.target_text, item.suspicion) == ("word", "ward", ("not_read_as_intended",))
    assert len(item.probes) == 8


def test_evidence_shows_no_region_that_is_known(only_item: Callable[..., WorkItem]) -> None:
    asked = Probe("q:1", "a.png", "a", "What year?", "open", "", "", (BOX,), answers=("1999", "1999"), task="docvqa")
    item = only_item([asked], kind="evidence")
    assert (item.views[0].regions, item.answers) == ((), ("1999",))


def test_changed_items_and_pictures_are_noticed(tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task")
    Image.new("RGB", (120, 80), "black").save(tmp_path / "pictures" / "page.png")
    refused("page.png was changed after the campaign was made", task.picture, "item-000", 0)
    file = tmp_path / "task" / ITEMS
    file.write_text(file.read_text().replace("ward", "word"), encoding="utf-8")
    refused("changed after the campaign was made", open_campaign, tmp_path / "task")


def answered(task: Campaign, *, differ: bool = True) -> Campaign:
    """All read once, half of it twice, the last of those differently; a third person decides."""
    twice = [item.id for item in task.items if item.second]
    worst = task.kind.field(task.kind.decision).answers[-1]
    task.journal.append_all((FIRST, "ann", item.id, said(task.kind)) for item in task.items)
    task.journal.append_all(
        (SECOND, "bob", name, said(task.kind, worst if differ and name == twice[-1] else "")) for name in twice
    )
    return task


@pytest.mark.parametrize("kind", KINDS.values(), ids=lambda kind: kind.name)
def test_the_artifacts_columns_come_back_as_they_went(kind: CampaignKind, tmp_path: Path) -> None:
    task = answered(sample_task(tmp_path / "task", kind=kind))
    file = tmp_path / ("rows.jsonl" if kind.draws_boxes else "rows.csv")
    sent = answers_of(read_judgements(task), FIRST)
    file.write_text(artifact_text(kind, sent), encoding="utf-8")
    for (back, one, _), (item, two, _) in zip(read_artifact(task, file), sent, strict=True):
        assert back.id == item.id
        assert {name: value for name, value in one.items() if value and name != "boxes"} == {
            name: value for name, value in two.items() if value and name != "boxes"
        }
        for drawn, wanted in zip(one.get("boxes", ()), two.get("boxes", ()), strict=True):
            assert drawn["region"] == pytest.approx(wanted["region"], abs=1e-4), "a hundredth of a pixel"
            assert (drawn["role"], drawn["text"]) == (wanted["role"], wanted["text"])


def test_no_cell_of_an_export_is_a_formula_and_its_text_comes_back(tmp_path: Path) -> None:
    task = sample_task(tmp_path / "task", 1, second=0.0)
    task.journal.append_all([(FIRST, "ann", task.items[0].id, said(annotator_notes="=1+1"))])
    annotate("export", task.path, "--out", tmp_path / "first.csv", "--whose", "first")
    (row,) = read_table(tmp_path / "first.csv")
    assert row["annotator_notes"] == "'=1+1"
    ((_, fields, _),) = read_artifact(task, tmp_path / "first.csv")
    assert fields["annotator_notes"] == "=1+1"


def test_hard_negatives_have_the_artifacts_columns(tmp_path: Path) -> None:
    task = answered(sample_task(tmp_path / "task"))
    annotate("export", tmp_path / "task", "--out", tmp_path / "first.csv", "--whose", "first")
    table = read_table(tmp_path / "first.csv")
    assert list(table[0]) == [
        "sample_id", "image_id", "image", "question", "source_text", "target_text", "target_answer",
        "evidence_regions_json", "selection_priority", "auto_suspicion_reason", "edit_distance", "token_area_rank",
        "human_source_text_visible", "human_target_text_visible_same_image",
        "target_absent_after_case_punct_normalization", "source_bbox_matches_source_text", "qc_decision",
        "invalid_reason", "annotator_id", "annotator_notes",
    ]  # fmt: skip
    assert json.loads(table[0]["evidence_regions_json"]) == [[0.25, 0.25, 0.5, 0.5]]
    assert {row["annotator_id"] for row in table} == {"ann"}
    assert len(table) == len(task.items)


def test_evidence_is_rows_that_the_paper_reads(tmp_path: Path) -> None:
    answered(sample_task(tmp_path / "evidence", kind=EVIDENCE), differ=False)
    annotate("export", tmp_path / "evidence", "--out", tmp_path / "rows.jsonl")
    rows = read_typed_rows(tmp_path / "rows.jsonl", complete=True)
    assert len(rows) == 6
    assert (rows[0].boxes[0].label, rows[0].boxes[0].x, rows[0].boxes[0].w) == ("answer_value:42", 12.0, 48.0)


def test_answers_are_imported_once_and_all_or_none(tmp_path: Path, refused: Refused) -> None:
    source = answered(sample_task(tmp_path / "task"))
    annotate("export", tmp_path / "task", "--out", tmp_path / "first.csv", "--whose", "first")
    annotate("export", tmp_path / "task", "--out", tmp_path / "second.csv", "--whose", "second")
    (tmp_path / "two").mkdir()
    target = sample_task(tmp_path / "two" / "task")
    assert annotate("import", target.path, tmp_path / "first.csv") == ["imported     6 new of 6 answers"]
    assert annotate("import", target.path, tmp_path / "first.csv") == ["imported     0 new of 6 answers"]
    assert annotate("import", target.path, tmp_path / "second.csv", "--second") == ["imported     3 new of 3 answers"]
    ours, theirs = ([(e.pass_, e.who, e.item) for e in task.journal.entries()] for task in (source, target))
    assert ours == theirs
    refused("ann has already worked on", annotate, "import", target.path, tmp_path / "first.csv", "--as", "eve")
    assert len(target.journal.entries()) == 9


def test_wrong_rows_are_refused_with_their_line(tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task")
    for words, line in {
        "line 2: column qc_decision:": "item-000,maybe,ann",
        "line 2: has no sample_id or image_id of an item": "other,valid_negative,ann",
        "line 2: column human_source_text_visible:": "item-000,unclear,ann",
    }.items():
        (tmp_path / "rows.csv").write_text(f"sample_id,qc_decision,annotator_id\n{line}\n", encoding="utf-8")
        refused(words, read_artifact, task, tmp_path / "rows.csv")


def test_answers_without_a_name_and_two_about_one_item_are_refused(tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task")
    refused("say whose answers these are with --as", import_answers, task, {FIRST: [(task.items[0], said(), "")]}, None)
    refused("' twice in the first pass", import_answers, task, {FIRST: [(task.items[0], said(), "ann")] * 2}, None)


def test_sign_off_is_refused_until_nothing_is_open(tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task")
    refused("6 of the first pass and 3 of the second pass", annotate, "sign-off", task.path, "--as", "dora")
    answered(task)
    refused("1 open disagreement ", annotate, "sign-off", task.path, "--as", "dora")
    (disputed,) = [each.item.id for each in read_judgements(task) if each.disputed]
    task.journal.append_all([(ADJUDICATION, "carol", disputed, said(HARD_NEGATIVES, "invalid_bad_box"))])
    lines = annotate("sign-off", task.path, "--as", "dora")
    assert lines[1:] == ["           5 valid_negative", "           1 invalid_bad_box"]
    found = read_decision_file(task.path / "decisions.jsonl")
    assert (found.head["journal_digest"], found.head["items_digest"]) == (task.journal.digest(), task.digest)
    assert disputed not in found.valid_probes
    assert len(found.valid_probes) == 10


def test_decisions_are_written_without_a_sign_off(tmp_path: Path) -> None:
    answered(sample_task(tmp_path / "agreed"), differ=False)
    annotate("export", tmp_path / "agreed", "--format", "decisions", "--out", tmp_path / "decisions.csv")
    table = read_table(tmp_path / "decisions.csv")
    assert {(row["provenance"], row["valid"]) for row in table} == {("agreement", "true"), ("first_only", "true")}


@pytest.mark.parametrize("kind", [HARD_NEGATIVES, EVIDENCE], ids=lambda kind: kind.name)
def test_agreement_is_printed_and_written(kind: CampaignKind, tmp_path: Path, refused: Refused) -> None:
    task = sample_task(tmp_path / "task", kind=kind)
    refused("no item has been read by two people yet", annotate, "agreement", task.path)
    answered(task)
    lines = annotate("agreement", task.path, "--out", tmp_path / "agreement", "--draws", 200)
    assert "disagreements  1, of which 0 adjudicated" in lines
    page = (tmp_path / "agreement" / "agreement.html").read_text(encoding="utf-8")
    assert "Cohen" in page
    tables = {file.name for file in (tmp_path / "agreement" / "tables").glob("*.csv")}
    assert tables == ({"fields.csv", "boxes.csv", "roles.csv"} if kind.draws_boxes else {"fields.csv"})


def test_what_cannot_be_served_is_said_before_anything_is_served(tmp_path: Path, refused: Refused) -> None:
    refused("is no campaign; make one with 'sightline annotate new'", annotate, tmp_path / "nothing", "--as", "ann")
    task = sample_task(tmp_path / "task", second=0.0)
    refused("has nothing for bob in the second pass", annotate, task.path, "--as", "bob", "--second")
    refused("has nothing for carol in the adjudication pass", annotate, "adjudicate", task.path, "--as", "carol")
    (tmp_path / "pictures").rename(tmp_path / "elsewhere")
    refused("picture page.png is not in", annotate, task.path, "--as", "ann")


def test_an_export_says_which_items_it_left_out_and_why(tmp_path: Path) -> None:
    task = sample_task(tmp_path / "task", 6, second=0.5)
    task.journal.append_all([(FIRST, "ann", item.id, said()) for item in task.items[:5]])
    second = [item.id for item in task.items if item.second]
    task.journal.append_all([(SECOND, "bob", second[0], said(decision="unclear"))])
    waiting = [item.id for item in task.items[:5] if item.second and item.id != second[0]]
    ((_, words),) = export_answers(task, "artifact", tmp_path / "out.csv", "final")
    assert waiting
    assert f"{len(waiting)} waiting for a second person ({', '.join(waiting)})" in words
    assert f"1 two people differ, a third has to decide ({second[0]})" in words
    assert task.items[5].id in words
    ((_, words), _) = export_answers(task, "label-studio", tmp_path / "out.json", "final")
    assert words.endswith(f"without a confirmed answer: 1 ({task.items[5].id})")


def test_an_export_has_a_name_that_fits(tmp_path: Path, refused: Refused) -> None:
    task = answered(sample_task(tmp_path / "task"))
    for file_format, name, words in (
        ("artifact", tmp_path / "x.jsonl", "end the name in .csv"),
        ("label-studio", tmp_path / "x.csv", "end the name in .json"),
        ("label-studio", Path("-"), "name a .json file"),
    ):
        refused(words, export_answers, task, file_format, name, "final")
