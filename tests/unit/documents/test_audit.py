"""From documents to the files of a run: what is asked, evidence and decoys, twins, arms that suit a model."""

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.answering.scorers import SCORERS
from sightline.auditing.audit import ask_questions
from sightline.boxes.detection import TextsRead
from sightline.checks.demo import asset
from sightline.core.probe import ORIGINAL, TWIN, Probe
from sightline.documents import audit, reading
from sightline.documents.build import DocumentProbes, build_document_probes, read_dropped, write_pages
from sightline.documents.pages import DocumentPage
from sightline.documents.questions import QuestionRules, _is_plausible, asked_probes
from sightline.errors import SightlineError
from sightline.probes import read_probes, read_regions, write_probes
from sightline.probes.images import image_digest
from sightline.probes.probe_file import ProbeSet
from sightline.probes.typed_rows import SignedDecision, write_decisions
from sightline.store import RunFolder
from tests.command_line import sightline
from tests.refusals import Refused
from tests.unit.documents.pages_for_tests import HEIGHT, INVOICE, WIDTH, drawn, found, read

TEXTS = [[line.text, *line.box] for line in read(INVOICE).lines]


@pytest.fixture
def asked(tmp_path: Path) -> list[Probe]:
    """Two questions about a drawn invoice."""
    drawn(INVOICE).save(tmp_path / "invoice.png")
    boxes: dict[str, Any] = {str(text): tuple(box) for text, *box in TEXTS}
    facts: dict[str, Any] = {"image": "invoice.png", "image_id": "invoice", "label": "open", "extra": {"page": TEXTS}}
    return [
        Probe(
            id=f"invoice:{label}",
            question=f'What is the text right of "{label}"?',
            target_text=label,
            source_text=value,
            regions=(boxes[text],),
            answers=(value, text),
            **facts,
        )
        for label, value, text in (("Total", "139.95", "$139.95"), ("Cash", "150.00", "150.00"))
    ]


def test_twins_stand_beside_their_pages_and_are_painted_once(asked: list[Probe], tmp_path: Path) -> None:
    twins = audit.paint_twins(asked, tmp_path)
    painted = tmp_path / twins[0].image
    assert re.fullmatch(r"invoice\.png-\w{10}\.twin\.png", twins[0].image)
    with Image.open(painted) as twin, Image.open(tmp_path / "invoice.png") as original:
        assert twin.size == original.size == (WIDTH, HEIGHT)
        assert (np.asarray(twin) != np.asarray(original)).any()
    assert [(twin.id, twin.view, twin.question) for twin in twins] == [(each.id, TWIN, each.question) for each in asked]
    total = twins[0]
    assert total.answers[1] == f"${total.answers[0]}" != "$139.95"
    assert [total.answers[1], *asked[0].regions[0]] in total.extra["page"]
    written = painted.stat().st_mtime_ns
    assert audit.paint_twins(asked, tmp_path) == twins
    assert painted.stat().st_mtime_ns == written
    (fewer,) = audit.paint_twins(asked[:1], tmp_path)
    assert fewer.image != painted.name, "a label that nobody asks for is renamed: another picture"
    drawn(INVOICE.replace("150.00", "151.00")).save(tmp_path / "invoice.png")
    assert audit.paint_twins(asked, tmp_path)[0].image not in (painted.name, fewer.image), "of a page that was replaced"


def test_pages_are_transcribed_as_a_whole(asked: list[Probe]) -> None:
    (whole,) = audit.transcript_probes(asked)
    assert (whole.id, whole.image_id) == ("invoice:transcript", "invoice")
    assert whole.answers[0].splitlines() == [text for text, *_ in TEXTS]
    assert (len(whole.regions), whole.extra["page"]) == (len(TEXTS), TEXTS)


def test_a_folder_with_a_run_over_other_questions_stays_as_it_is(
    asked: list[Probe], tmp_path: Path, refused: Refused
) -> None:
    texts = replace(read(INVOICE), image="invoice.png")
    page = DocumentPage("invoice.png", "invoice.png", 0, WIDTH, HEIGHT)
    pages = tmp_path / "pages.jsonl"
    built = DocumentProbes(tuple(asked), tmp_path, (page,), {"invoice.png": texts}, pages, {}, (), {})
    files = audit.write_questions(built, tmp_path / "probes.jsonl", run=tmp_path / "run")
    RunFolder(tmp_path / "run").open({"probe_digest": files.digest, "shards": 0}, ["full"], files.probes.read_bytes())
    assert audit.write_questions(built, tmp_path / "probes.jsonl", run=tmp_path / "run") == files
    before = {file.name: file.read_bytes() for file in tmp_path.glob("*.jsonl")}
    other = replace(built, probes=tuple(asked[:1]), pages=())
    about = "holds a run over other probes; choose another --out"
    refused(about, audit.write_questions, other, tmp_path / "probes.jsonl", run=tmp_path / "run")
    assert {file.name: file.read_bytes() for file in tmp_path.glob("*.jsonl")} == before
    assert set(before) == {"pages.jsonl", "probes.jsonl", "transcripts.jsonl"}


@pytest.mark.parametrize(
    ("served", "methods", "keep", "arms"),
    [
        ({"divprune": "yes", "target": "yes", "cdpruner": "yes, with --clip"}, [], [0.3],
         "full divprune:0.3 target:0.3 random:0.3 grid:0.3 resize:0.3"),
        ({}, ["fastv"], [0.25, 0.5], "full fastv:0.5 random:0.5 grid:0.5 resize:0.5 "
         "fastv:0.25 random:0.25 grid:0.25 resize:0.25"),
        ({}, ["target", "random", "target"], [0.3, 0.3000001], "full target:0.3 random:0.3 grid:0.3 resize:0.3"),
    ],
)  # fmt: skip
def test_arms_are_methods_that_the_model_serves_with_controls_at_every_budget(
    served: dict[str, str], methods: Sequence[str], keep: Sequence[float], arms: str
) -> None:
    assert audit.choose_arms(served, methods, keep) == arms.split()


@pytest.mark.parametrize(
    ("options", "about"),
    [
        *(({"keep": [share]}, f"--keep {share:g} is") for share in (0, 1.5, math.nan, -0.3, 1 - 1e-9)),
        ({"methods": ["unknown"]}, "unknown selector 'unknown'"),
        ({"methods": ["target:0.3"]}, "'0.7' is not an argument of target"),
        ({"methods": ["prumerge"]}, "prumerge"),
        ({"ocr": "eyes"}, "unknown text detector 'eyes'"),
        ({"device": "mars"}, "unknown --device 'mars'"),
        ({"out": __file__}, "is a file; choose another --out"),
        ({"model": "TMP"}, "has no config.json"),
        ({"documents": "https://host/a.pdf"}, "documents are read from this machine"),
        ({"documents": ""}, "the documents have no name"),
    ],
)  # fmt: skip
def test_what_needs_no_page_to_be_seen_is_refused_before_any_is_read(
    options: dict[str, Any], about: str, tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "build_document_probes", None)
    options = {"out": tmp_path / "out", "documents": str(tmp_path), **options}
    model = str(tmp_path) if options.pop("model", "") else str(asset("reader"))
    refused(about, audit.audit_documents, model, [options.pop("documents")], audit.DocumentOptions(**options))


def test_a_model_is_proved_once_and_again_when_anything_of_it_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[str] = []

    def examine(backbone: Any, page: Image.Image, name: str, **_: Any) -> SimpleNamespace:
        examined.append(name)
        return SimpleNamespace(failed=False, checks=(), as_dict=lambda: {"selectors": {}, "checks": []})

    monkeypatch.setattr("sightline.checks.doctor.examined", examine)
    monkeypatch.setattr("sightline.backbones.load_backbone", lambda *_, **__: SimpleNamespace(fit=lambda *_: None))
    model, page = tmp_path / "model", tmp_path / "page.png"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"first")
    Image.new("RGB", (20, 20)).save(page)

    def prove(device: str = "cpu") -> int:
        found = audit.prove_model(str(model), page, [(20, 20)], [0.3], tmp_path, device=device, dtype="auto")
        assert found["resize"] == {"0.3": ""}
        return len(examined)

    assert [prove(), prove(), prove("cuda"), prove("cuda")] == [1, 1, 2, 2]
    (model / "model.safetensors").write_bytes(b"other weights")
    assert [prove("cuda"), prove("cuda")] == [3, 3]
    (tmp_path / "doctor.json").write_text("[]")
    assert [prove("cuda"), prove("cuda")] == [4, 4]


def test_a_file_of_questions_stands_for_the_images_that_it_names(tmp_path: Path, refused: Refused) -> None:
    table = tmp_path / "asked.csv"
    table.write_text("image,question,answers\na.png,Total?,1.00\nb.png,Date?,2031\n")
    for shade, name in enumerate(("a.png", "b.png", "unasked.png")):  # pages that show the same would be one
        Image.new("L", (20, 20), shade).save(tmp_path / name)
    documents, questions = audit.documents_and_questions([str(table)], None, tmp_path / "out")
    assert ([path.name for path in documents], questions) == (["a.png", "b.png"], [table])
    assert audit.documents_and_questions([str(tmp_path)], table, tmp_path) == ([tmp_path], [table])
    assert audit.documents_and_questions([str(table)], None, tmp_path, limit=1)[0] == documents[:1]
    (tmp_path / "a.png").unlink()
    assert audit.documents_and_questions([str(table)], None, tmp_path, limit=1)[0] == documents[1:]
    (tmp_path / "b.png").unlink()
    refused("names no image that is there", audit.documents_and_questions, [str(table)], None, tmp_path)
    refused("questions of its own", audit.documents_and_questions, [str(table)], table, tmp_path)


PROSE = """
100 100 Lanterns swayed gently beside seventeen wooden barrels
100 140 while merchants counted silver under painted canvas
"""
PAGES = {"invoice.png": INVOICE, "prose.png": PROSE, "blank.png": "", "unsure.png": "10 10 Smear ~0.75"}


@pytest.fixture
def documents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four pages and a reader that knows them; nothing but their names is looked at."""
    folder = tmp_path / "documents"
    folder.mkdir()
    for shade, name in enumerate(PAGES):  # pages that show the same would be one
        Image.new("L", (WIDTH, HEIGHT), shade).save(folder / name)

    def known(engine: str, root: Path, names: Iterable[str], **_: Any) -> dict[str, TextsRead]:
        return {name: TextsRead(WIDTH, HEIGHT, found(PAGES[name])) for name in names}

    monkeypatch.setattr(reading, "read_texts", known)
    return folder


def build(documents: Path, **options: Any) -> DocumentProbes:
    built = build_document_probes(documents, documents.parent / "out", **{"second": None, **options})
    write_pages(built)
    return built


def asking(built: DocumentProbes, ending: str) -> dict[str, Probe]:
    return {probe.source_text: probe for probe in built.probes if probe.id.endswith(ending)}


def test_a_field_gives_an_open_question_and_a_pair_of_which_one_sign_differs(documents: Path) -> None:
    built = build(documents, fields_per_page=0)
    total = asking(built, ":open")["139.95"]
    assert total.question == 'What is the text right of "Total"?'
    assert (total.target_text, total.answers, total.kind) == ("Total", ("139.95", "$139.95"), "total")
    assert total.roles == ("answer_value", "field_label")
    assert total.decoy in {"48.20", "91.75", "150.00"}
    assert total.extra["relation"] == "right_of"
    assert ["Copper wire", 0.1, 0.425, 0.232, 0.455] in total.extra["page"]
    cell = asking(built, ":open")["48.20"]
    assert cell.question == 'What is the text below "Price" and right of "Copper wire"?'
    assert cell.roles == ("answer_value", "column_header", "row_header")
    yes, no = asking(built, ":yes")["139.95"], asking(built, ":no")["139.95"]
    assert yes.question == 'Does the image contain the exact text "139.95"? Answer yes or no.'
    assert yes.regions == no.regions == total.regions[:1]
    assert no.target_text not in {row[0] for row in no.extra["page"]}
    negatives = [probe for probe in built.probes if probe.label == "no"]
    assert len(negatives) > 5
    for probe in negatives:
        (changed,) = [pair for pair in zip(probe.source_text, probe.target_text, strict=True) if pair[0] != pair[1]]
        assert changed[0].isdigit() == changed[1].isdigit()


DATES = {
    "31-12-2018": True, "2018/06/26": True, "12 Jan 2018": True, "1.9.2018": True,
    "32-12-2018": False, "00-12-2018": False, "31-13-2018": False, "45 Jan 2018": False,
}  # fmt: skip


def test_a_decoy_of_a_date_could_be_one() -> None:
    assert {date: _is_plausible(date) for date in DATES} == DATES


def test_fields_are_few_spread_over_kinds_and_drawn_alike(documents: Path) -> None:
    built = build(documents, fields_per_page=5)
    kinds = [probe.kind for probe in built.probes if probe.is_open and probe.image == "invoice.png"]
    assert kinds == ["total", "amount", "date", "identifier", "name"]
    assert build(documents, fields_per_page=5).probes == built.probes
    assert build(documents, fields_per_page=5, seed=18).probes != built.probes


def test_fields_are_called_by_name_if_asked(documents: Path, refused: Refused) -> None:
    questions = {text: probe.question for text, probe in asking(build(documents, wording="field"), ":open").items()}
    assert questions["139.95"] == "What is the total?"
    assert questions["INV-20417"] == "What is the invoice number?"
    refused("unknown wording 'poem'", build, documents, wording="poem")


def test_a_page_of_prose_is_asked_for_its_words(documents: Path) -> None:
    built = build(documents)
    opened = [probe for probe in built.probes if probe.image == "prose.png" and probe.is_open]
    assert len(opened) >= 4
    words = PROSE.split()
    for probe in opened:
        assert probe.question == f'What is the text right of "{probe.target_text}"?'
        assert probe.answers[0] == words[words.index(probe.target_text) + 1]
    assert sum(probe.image == "prose.png" and probe.label == "yes" for probe in built.probes) > 3


def test_what_is_left_out_is_said_and_counted(documents: Path, refused: Refused) -> None:
    (documents / "broken.pdf").write_bytes(b"%PDF-1.4")
    built = build(documents)
    assert [built.counts[name] for name in ("pages", "pages_left_out", "files_refused")] == [4, 2, 1]
    left_out = [line for line in built.lines if line.startswith("left out")]
    assert [line.split()[2].strip(":") for line in left_out] == ["broken.pdf", "blank.png", "unsure.png"]
    assert "no text was found" in left_out[1]
    for name in ("invoice.png", "prose.png"):
        (documents / name).unlink()
    refused("2 pages give no question: broken.pdf", build, documents)


def test_pages_are_a_regions_file_which_says_what_was_dropped_and_why(documents: Path, tmp_path: Path) -> None:
    first = build(documents)
    regions = {record.image: record for record in read_regions(first.pages_file).records}
    assert "Copper wire" in regions["invoice.png"].texts
    assert [word.text for word in regions["unsure.png"].words] == [""]
    rows = [json.loads(line) for line in first.pages_file.read_text().splitlines()]
    (dropped,) = next(row["words"] for row in rows if row.get("image") == "unsure.png")
    assert (dropped["reading"], dropped["reason"], dropped["confidence"]) == ("Smear", "unsure", 0.75)
    write_probes(tmp_path / "probes.jsonl", first.probes, construction=first.construction)
    assert read_probes(tmp_path / "probes.jsonl").probes == first.probes
    (text,) = read_dropped(first.pages_file).probes
    assert (text.source_text, text.kind) == ("Smear", "unsure")


def test_a_text_counts_because_a_person_read_it(documents: Path, tmp_path: Path, refused: Refused) -> None:
    (text,) = read_dropped(build(documents).pages_file).probes

    def built(kind: str = "texts", digest: str = image_digest(documents / "unsure.png")) -> DocumentProbes:
        stands = {"image_digest": digest, "box": text.regions[0], "reading": "Smear", "text": "Spear"}
        decided = [
            SignedDecision(text.id, text.image_id, (), "wrong_text", False, "agreement", stands),
            SignedDecision("other", text.image_id, (), "unreadable", False, "agreement"),
        ]
        write_decisions(tmp_path / "signed.jsonl", {"kind": kind}, decided)
        return build(documents, accepted=tmp_path / "signed.jsonl")

    (line,) = built().readings["unsure.png"].lines
    assert (line.text, line.box, line.by_people) == ("Spear", text.regions[0], True)
    assert (built().counts["texts_by_people"], built().counts["texts_dropped"]) == (1, 0)
    assert built().readings["unsure.png"].problem == ""
    assert any(", 1 read by people; 0 do not" in line for line in built().lines)
    other = built(digest=image_digest(documents / "prose.png"))
    assert other.counts["texts_by_people"] == 0, "another picture"
    assert any(line.startswith("not found    1 texts of") for line in other.lines)
    refused("holds decisions of another kind", built, kind="hard-negatives")


def test_a_model_is_proved_on_a_page_that_is_asked_about(
    documents: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prove(model: str, page: Path, sizes: Iterable[tuple[int, int]], *_: Any, **__: Any) -> None:
        raise SightlineError(f"{page.name} {list(sizes)}")

    monkeypatch.setattr("sightline.documents.audit.prove_model", prove)
    options = audit.DocumentOptions(out=tmp_path / "out", second="none")
    with pytest.raises(SightlineError) as met:
        audit.audit_documents(str(asset("reader")), [str(documents)], options)
    assert str(met.value) == f"invoice.png {[(WIDTH, HEIGHT)] * 2}", "blank.png is the first, and left out"


def test_the_command_writes_a_file_for_each_kind_of_question(documents: Path, tmp_path: Path, refused: Refused) -> None:
    for pages in (documents, tmp_path / "out/pages"):  # twins that are there are nobody's documents
        said = sightline("probes", "build", pages, "--ocr", "rapidocr", "--out", tmp_path / "out/asked.jsonl").output
        assert "4 pages of 4 files" in said
    asked, pairs, transcripts = (
        read_probes(tmp_path / f"out/{name}.jsonl").probes for name in ("asked", "pairs", "transcripts")
    )
    assert {(probe.is_open, probe.view) for probe in asked} == {(True, ORIGINAL), (True, TWIN)}
    assert {probe.label for probe in pairs} == {"yes", "no"}
    assert [probe.image_id for probe in transcripts] == ["invoice.png", "prose.png"]
    assert all((tmp_path / "out/pages" / probe.image).is_file() for probe in asked + pairs + transcripts)
    mixed = ProbeSet(asked + pairs)
    refused("probes are open questions", ask_questions, SCORERS.get("open")(), mixed)


def test_questions_of_somebody_get_evidence_kind_and_decoy(documents: Path, tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "questions.csv"
    file.write_text(
        "image,question,answers\ninvoice.png,What is due?,139.95\nnone.png,What?,1\nprose.png,Who?,merchants\n"
        "prose.png,What else?,\n"
    )
    built = build(documents, questions=file)
    due, who = built.probes
    assert (due.question, due.kind, due.roles) == ("What is due?", "amount", ("answer_value",))
    assert due.regions[0] == pytest.approx((0.6, 0.625, 0.684, 0.655))
    assert due.decoy in {"48.20", "91.75", "150.00"}
    assert ["Total", 0.1, 0.625, 0.16, 0.655] in due.extra["page"]
    assert who.image == "prose.png"
    assert any("none.png is on none of the pages" in line for line in built.lines)
    assert "questions    3 images, 3 questions, 1 questions without answers" in built.lines
    file.write_text("image,question,answers\nnone.png,What?,1\n")
    refused("no question is about one of the 4 pages: question qa:0: none.png", build, documents, questions=file)


STATED = {
    "2024/a.png": "2024/a.png", "/home/me/scans/2024/a.png": "2024/a.png", "2023/a.png": None, "a.png": "2024/a.png",
    "2024/a": "2024/a.png", "b.png#1": "b.png", "b.png#2": None, "old/b.png": "b.png",
}  # fmt: skip


def test_a_path_means_the_page_that_ends_like_it() -> None:
    pages = [DocumentPage(name, name, 0, WIDTH, HEIGHT) for name in ("2024/a.png", "b.png")]
    readings = {each.image: read(INVOICE) for each in pages}
    for stated, page in STATED.items():
        asked = Probe("q", stated, stated.rpartition(".")[0] or stated, "?", "open", "", "", (), answers=("139.95",))
        found, lines = asked_probes([asked], pages, readings, QuestionRules())
        assert [each.image for each in found] == ([page] if page else []), stated
        assert len(lines) == (page is None)


def test_a_question_about_a_pdf_is_about_the_page_with_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole way with a real reader: a PDF of two pages, rendered, read and asked about."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "documents"
    folder.mkdir()
    drawn(PROSE, 2).save(folder / "both.pdf", save_all=True, append_images=[drawn(INVOICE, 2)], resolution=150.0)
    built = build_document_probes(folder, tmp_path / "out", second=None)
    assert built.counts["pages_converted"] == 2
    assert {probe.image_id for probe in built.probes} == {"both.pdf#1", "both.pdf#2"}
    total = asking(built, ":open")["139.95"]
    assert (total.image_id, total.target_text) == ("both.pdf#2", "Total")
    assert total.regions[1] == pytest.approx((0.1, 0.625, 0.16, 0.66), abs=0.02)
    file = tmp_path / "questions.jsonl"
    file.write_text(json.dumps({"image": "both.pdf", "question": "Which number?", "answers": ["INV-20417"]}) + "\n")
    (own,) = build_document_probes(folder, tmp_path / "out", second=None, questions=file).probes
    assert (own.image_id, own.kind) == ("both.pdf#2", "identifier")
