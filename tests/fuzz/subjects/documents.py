"""What people have in the place of documents: damaged pages and PDFs, questions and texts that somebody typed."""

import io
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any, ClassVar
from unittest.mock import patch

from PIL import Image

from sightline.boxes.detection import TextsRead
from sightline.documents import reading
from sightline.documents.audit import documents_and_questions, write_questions
from sightline.documents.build import build_document_probes, read_dropped, write_pages
from sightline.errors import SightlineError
from sightline.probes.images import image_digest, open_image
from sightline.probes.probe_file import lines_digest
from sightline.probes.typed_rows import HEAD, VERSION
from tests.fuzz import mutations
from tests.fuzz.subjects.base import Subject
from tests.unit.documents.pages_for_tests import HEIGHT, INVOICE, WIDTH, found
from tests.unit.documents.test_pages import ENCRYPTED

NAMES = ("given.pdf", "given.png", "given.jpg", "given.tif", "given.txt", "given")


def _known(engine: str, root: Path, names: Iterable[str], **_: Any) -> dict[str, TextsRead]:
    """An engine that reads an invoice on every page that can be opened, with one text that does not count."""

    def read(name: str) -> TextsRead:
        try:
            open_image(root, name)
        except SightlineError as problem:
            return TextsRead(0, 0, (), str(problem))
        return TextsRead(WIDTH, HEIGHT, found(f"{INVOICE}10 700 Smear ~0.75"))

    return {name: read(name) for name in names}


class Documents(Subject, name="documents", share=1.5):
    """``audit`` and ``probes build --ocr``, all but the engines and the model: a good page beside what is damaged."""

    questions: ClassVar[list[Any]] = [
        {"image": "good.png", "question": "What is due?", "answers": ["139.95"]},
        {"image": "good.png", "question": "Which number?", "answers": ["INV-20417", "20417"], "kind": "identifier"},
    ]
    table: ClassVar[str] = "image,question,answers\ngood.png,What is due?,139.95\ngood.png,Who?,Northern Lights\n"

    def prepare(self) -> None:
        page = Image.new("L", (WIDTH // 8, HEIGHT // 8), 200)
        self.good: list[bytes] = [b"", b"hello", ENCRYPTED]
        for kind in ("PDF", "PNG", "JPEG", "TIFF"):
            sink = io.BytesIO()
            page.save(sink, kind)
            self.good.append(sink.getvalue())
        self.documents, self.out, self.typed = (self.folder / name for name in ("documents", "out", "typed"))
        self.documents.mkdir()
        page.save(self.documents / "good.png")
        with patch.object(reading, "read_texts", _known):
            built = build_document_probes(self.documents, self.out, second=None)
        write_pages(built)
        (text,) = read_dropped(built.pages_file).probes
        digest = image_digest(self.documents / "good.png")
        stands = {"image_digest": digest, "box": list(text.regions[0]), "reading": "Smear", "text": "Spear"}
        decided = {"id": text.id, "image_id": "good.png", "probes": [], "decision": "wrong_text", "valid": False}
        self.signed = [{**decided, "provenance": "agreement", "text": stands}]

    def make(self, random: Random) -> tuple[str, bytes]:
        shutil.rmtree(self.typed, ignore_errors=True)
        self.typed.mkdir()
        for old in set(self.documents.iterdir()) - {self.documents / "good.png"}:
            old.unlink()
        what = random.choice(("page", "page", "questions", "asked", "texts"))
        if what == "page":
            data = random.choice(self.good)
            data = data if random.random() < 0.3 else mutations.bytes_like(data, random)
            (self.documents / random.choice(NAMES)).write_bytes(data)
        elif what == "texts":
            rows = mutations.value_like(self.signed, random)
            try:  # what is signed is read to its end; the rest is refused by its digest
                head = {HEAD: VERSION, "kind": "texts", "digest": lines_digest(rows)}
                data = "".join(f"{json.dumps(row)}\n" for row in (head, *rows)).encode(errors="surrogatepass")
            except (TypeError, ValueError):
                data = mutations.lines_bytes([{HEAD: VERSION, "kind": "texts"}, *self.signed], random)
            (self.typed / "texts.jsonl").write_bytes(data)
        elif random.random() < 0.5:
            data = mutations.text_like(self.table, random).encode(errors="surrogatepass")
            (self.typed / "questions.csv").write_bytes(data)
        else:
            data = mutations.lines_bytes(self.questions, random)
            (self.typed / "questions.jsonl").write_bytes(data)
        return what, data

    def read(self, given: tuple[str, bytes]) -> None:
        what, _ = given
        typed = next(self.typed.iterdir(), None)
        shutil.rmtree(self.out, ignore_errors=True)
        pages, questions = [self.documents], [typed] if what == "questions" and typed else []
        if what == "asked" and typed:
            shutil.copy(self.documents / "good.png", self.typed)
            pages, questions = documents_and_questions([str(typed)], None, self.out)
        with patch.object(reading, "read_texts", _known):
            built = build_document_probes(
                pages, self.out, questions=questions or None, second=None, gather=True,
                accepted=typed if what == "texts" else None,
            )  # fmt: skip
            write_questions(built, self.out / "probes.jsonl")
        assert all("\n" not in line for line in built.lines), built.lines

    def left_behind(self) -> list[str]:
        return [file.name for file in self.out.glob("*.jsonl")] if self.out.is_dir() else []
