"""From documents to the files of a run: twins beside the pages, transcripts, arms that suit a model."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.checks.demo import asset
from sightline.core.probe import TWIN, Probe
from sightline.documents import audit
from sightline.documents.build import DocumentProbes
from sightline.documents.pages import DocumentPage
from sightline.errors import SightlineError
from sightline.store import RunFolder
from tests.refusals import Refused
from tests.unit.documents.pages_for_tests import HEIGHT, INVOICE, WIDTH, drawn, read

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


def test_pages_are_transcribed_as_a_whole_and_a_folder_with_a_run_over_other_questions_stays_as_it_is(
    asked: list[Probe], tmp_path: Path, refused: Refused
) -> None:
    (whole,) = audit.transcript_probes(asked)
    assert whole.answers[0].splitlines() == [text for text, *_ in TEXTS]
    assert (len(whole.regions), whole.extra["page"]) == (len(TEXTS), TEXTS)
    reading = replace(read(INVOICE), image="invoice.png")
    page = DocumentPage("invoice.png", "invoice.png", 0, WIDTH, HEIGHT)
    pages = tmp_path / "pages.jsonl"
    built = DocumentProbes(tuple(asked), tmp_path, (page,), {"invoice.png": reading}, pages, {}, (), {})
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


def test_a_file_of_questions_stands_for_the_images_that_it_names(tmp_path: Path) -> None:
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
    with pytest.raises(SightlineError, match=r"names no image that is there: .*a\.png say"):
        audit.documents_and_questions([str(table)], None, tmp_path)
    with pytest.raises(SightlineError, match="questions of its own"):
        audit.documents_and_questions([str(table)], table, tmp_path)
