"""From a model and a folder of documents to a verdict: every step is an ordinary command, taken one after the other.

    documents -> pages -> texts -> questions (and twins) -> doctor -> run -> report and verdict

Each step leaves its files in one folder and does nothing twice: called again, the audit goes on where it stopped.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from os.path import isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from sightline.boxes.detectors import detector_named
from sightline.controls.page_twins import repaint, twin_page, twin_probes
from sightline.core.flags import OUTPUT, SPEED, WHAT, Flag
from sightline.core.probe import ORIGINAL, Probe
from sightline.core.selection import Budget
from sightline.documents.build import DocumentProbes, build_document_probes, write_pages
from sightline.documents.pages import TWIN_ENDING, made_name
from sightline.documents.settings import AUDIT
from sightline.engines import engine_of
from sightline.errors import SightlineError
from sightline.places.writing import refuse_unusable_place, write_whole
from sightline.probes.annotations import read_annotations
from sightline.probes.hub_data import hub_files, is_hub_data
from sightline.probes.images import image_digest, open_image, stored_as
from sightline.probes.probe_file import ProbeSet, write_probes
from sightline.store.folder import RunFolder

if TYPE_CHECKING:
    from sightline.report.verdict import AuditVerdict

PROBES, PAIRS, TRANSCRIPTS = "probes.jsonl", "pairs.jsonl", "transcripts.jsonl"
RUN, REPORT, DOCTOR = "run", "report", "doctor.json"
METHODS: Sequence[str] = AUDIT["methods"]
"""Published methods in the order in which they are preferred; an audit takes the first few that the model serves."""
CONTROLS: Sequence[str] = AUDIT["controls"]
KEEP: Sequence[float] = AUDIT["keep"]
TRANSCRIBE: str = AUDIT["transcribe"]
QUESTIONS = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
"""Endings of files that bring questions, and perhaps images, of their own."""


class DocumentOptions(BaseModel):
    """The options of ``sightline audit`` and ``sightline.audit_documents``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    questions: Annotated[Path | None, Flag(WHAT)] = Field(
        None, description="Your own questions: a table or JSON lines with image, question, answers."
    )
    keep: Annotated[list[float], Flag(WHAT, shown="0.7 0.5 0.3")] = Field(
        default_factory=list, description="Shares of the visual tokens to keep."
    )
    methods: Annotated[list[str], Flag(WHAT, "--method", shown="two that suit the model")] = Field(
        default_factory=list, description="Pruning methods."
    )
    margin: Annotated[float, Flag(WHAT)] = Field(
        0.02, ge=0, le=0.99, description="The loss of right answers that you accept; 1 would forbid nothing."
    )
    limit: Annotated[int | None, Flag(WHAT)] = Field(None, ge=1, description="Only so many first pages.")
    fields: Annotated[int, Flag(WHAT)] = Field(6, ge=0, description="Most fields asked for on a page; 0 for all.")
    wording: Annotated[Literal["place", "field"], Flag(WHAT)] = Field(
        "place", description="Ask by where a value stands, or by what it is."
    )
    twins: Annotated[bool, Flag(WHAT)] = Field(
        True, description="Ask about twins of the pages too: what was read, and what was guessed?"
    )
    pairs: Annotated[bool, Flag(WHAT)] = Field(False, description="Ask yes/no questions about exact texts too.")
    transcribe: Annotated[bool, Flag(WHAT)] = Field(False, description="Let the model write down every page too.")
    ocr: Annotated[str, Flag(WHAT)] = Field("rapidocr", description="Text detector that reads the pages.")
    second: Annotated[str, Flag(WHAT)] = Field(
        "auto", description="Second reader: auto is tesseract where it is installed; none."
    )
    texts: Annotated[Path | None, Flag(WHAT)] = Field(
        None, description="Signed-off file of people who looked at unsure texts (annotate --kind texts)."
    )
    prove: Annotated[bool, Flag(SPEED)] = Field(True, description="Doctor's quick checks of the model first.")
    dtype: Annotated[Literal["auto", "float32", "bfloat16", "float16"], Flag(SPEED)] = Field(
        "auto", description="Precision of the weights; auto is the one the checkpoint was saved in."
    )
    device: Annotated[str, Flag(SPEED)] = Field("auto", description="auto, cpu, cuda or cuda:1.")
    out: Annotated[Path, Flag(OUTPUT)] = Field(
        Path("sightline-audit"), description="Folder for pages, questions, run and report."
    )


@dataclass(frozen=True)
class DocumentAudit:
    """A finished audit: its files, and what it comes to."""

    runs: tuple[Path, ...]
    """The run about fields first."""
    images: Path
    report: Path
    verdict: AuditVerdict
    seconds: float


def audit_documents(
    model: str,
    documents: Sequence[str],
    options: DocumentOptions | None = None,
    say: Callable[[str], None] | None = None,
) -> DocumentAudit:
    """Audits a model on documents: folders, images, PDFs, or one file of questions with its images.

    ``say`` is told what was found and left out, a line each.
    """
    from sightline.auditing.audit import audit
    from sightline.auditing.config import AuditConfig
    from sightline.auditing.engine_worker import engine_arms
    from sightline.report.build import build_report
    from sightline.report.verdict import audit_verdict

    asked, began = options or DocumentOptions(), time.monotonic()
    refuse_unusable(model, asked)
    say = say or (lambda line: None)
    out = asked.out
    given, questions = documents_and_questions(documents, asked.questions, out, asked.limit)
    built = build_document_probes(
        given, out, questions=questions, ocr=asked.ocr, second=None if asked.second == "none" else asked.second,
        wording=asked.wording, fields_per_page=asked.fields, limit_pages=asked.limit, gather=True, accepted=asked.texts,
    )  # fmt: skip
    for line in built.lines:
        say(line)
    files = write_questions(built, out / PROBES, twins=asked.twins, run=out / RUN)
    if built.counts["texts_dropped"]:
        look = f"sightline annotate new {out / 'texts'} --kind texts --probes {built.pages_file} --images {built.root}"
        say(f"unsure texts {look}")
    served: Mapping[str, Any] = {}
    small: Mapping[str, str] = {}
    engine = engine_of(model)
    questioned = {probe.image for probe in built.probes}  # others were left out, perhaps because nobody can open them
    pages = [page for page in built.pages if page.image in questioned]
    if engine is not None:
        engine.load()
        arms = engine_arms(engine, open_image(built.root, pages[0].image), keep_of(asked.keep))
    elif asked.prove or not asked.methods:
        page = pages[0]
        sizes = [(each.width, each.height) for each in pages]
        found = prove_model(
            model, built.root / page.image, sizes, keep_of(asked.keep), out, device=asked.device, dtype=asked.dtype
        )
        served, small = found["selectors"], found["resize"]
        say(f"proved       {len(found['checks'])} checks passed on {page.page_id}")
    if engine is None:
        arms = choose_arms(served, asked.methods, asked.keep)
    for arm, why in [(f"resize:{budget}", why) for budget, why in small.items() if why]:
        arms.remove(arm)
        say(f"no {arm:9} {why}")
    say(f"arms         {', '.join(arms)}")
    parts = [(RUN, files.probes, "auto", 32)]
    if asked.pairs and files.pairs is not None:
        parts.append((f"{RUN}-pairs", files.pairs, "auto", 32))
    if asked.transcribe:
        parts.append((f"{RUN}-transcripts", files.transcripts, "transcription", 1024))
    for name, probes, scorer, longest in parts:
        audit(
            AuditConfig(
                model=model,
                probes=probes,
                images=files.images,
                arms=arms,
                out=out / name,
                device=asked.device,
                dtype=asked.dtype,
                scorer=scorer,
                longest_answer=longest,
                matched_controls=False,
            )
        )
    runs = tuple(out / name for name, *_ in parts)
    page_file = build_report(runs, out / REPORT, margin=asked.margin)
    verdict = audit_verdict(runs[0], margin=asked.margin)
    return DocumentAudit(runs, files.images, page_file, verdict, time.monotonic() - began)


def documents_and_questions(
    documents: Sequence[str], questions: Path | None, out: Path, limit: int | None = None
) -> tuple[list[Path], list[Path]]:
    """The images and PDFs that are meant, and the files of questions about them.

    One file of questions (a table, JSON lines, parquet with images inside), or a data set of the hub, stands for the
    images that it names; ``limit``: for so many of them.
    """
    if urls := [each for each in documents if "://" in each]:
        raise SightlineError(f"{urls[0]}: documents are read from this machine; fetch them, then name their folder")
    if "" in documents:  # as a path it would be the folder one is in
        raise SightlineError("the documents have no name: is a variable empty? Name a folder, an image or a PDF")
    given = [Path(each) for each in documents]
    asks = len(given) == 1 and given[0].is_file() and given[0].suffix.lower() in QUESTIONS
    if not asks and not (len(given) == 1 and is_hub_data(given[0])):
        return given, [questions] if questions is not None else []
    if questions is not None:
        raise SightlineError(
            f"{given[0]} brings questions of its own; leave out --questions, or name the images instead"
        )
    files = given if asks else hub_files(given[0])
    ingest = read_annotations(files, {})
    if not ingest.probes:
        raise SightlineError(f"{given[0]} asks no questions; it needs columns image, question and answers")
    named = list(dict.fromkeys(probe.image for probe in ingest.probes))
    root = ingest.images or files[0].parent
    if ingest.packed is not None:
        root = out / "unpacked"
        ingest.packed.unpack(root, set(named[:limit]))
    there = [root / name for name in named if isfile(root / name)]
    if not there:
        raise SightlineError(f"{given[0]} names no image that is there: {root / named[0]} say")
    return there[:limit], files


@dataclass(frozen=True)
class AskedDocuments:
    """The files that a run is made of."""

    images: Path
    probes: Path
    """Open questions about the pages and, behind them, about their twins; where there are none, yes/no questions."""
    pairs: Path | None
    """Yes/no questions, where they stand beside open ones."""
    transcripts: Path
    digest: str
    """Of the probes."""


def write_questions(
    built: DocumentProbes, probes: Path, *, twins: bool = True, run: Path | None = None
) -> AskedDocuments:
    """Probe files of the documents, a kind of question each, beside one another; twins are painted once.

    ``run`` is one that they are for: where it asks other questions, what it was made from stays as it is.
    """
    pairs = [probe for probe in built.probes if not probe.is_open]
    asked = [probe for probe in built.probes if probe.is_open]
    mirrored = paint_twins(asked, built.root) if twins else []
    first = ProbeSet((*asked, *mirrored) or tuple(pairs), built.construction)
    if run is not None and (folder := RunFolder(run)).exists:
        folder.refuse_other({"probe_digest": first.digest})
    write_pages(built)
    write_probes(probes, first)
    beside, transcripts = probes.with_name(PAIRS) if asked and pairs else None, probes.with_name(TRANSCRIPTS)
    if beside is not None:
        write_probes(beside, pairs, construction=built.construction)
    write_probes(transcripts, transcript_probes(built.probes), construction=built.construction)
    return AskedDocuments(built.root, probes, beside, transcripts, first.digest)


def paint_twins(probes: Sequence[Probe], root: Path) -> list[Probe]:
    """The probes about the twins of their pages, whose images are written beside the pages unless they are there."""
    images: dict[str, str] = {}
    renamings = {}
    for image_id, own in _by_page(probes).items():
        texts = [(str(text), tuple(box)) for text, *box in own[0].extra.get("page", ())]
        if not texts:
            continue
        labels = [probe.target_text for probe in own] + [str(probe.extra.get("row", "")) for probe in own]
        new, renamings[image_id] = twin_page(texts, image_id, [label for label in labels if label])
        changes = [(old, other, box) for (old, box), other in zip(texts, new, strict=True)]
        # By what is painted on what: other questions keep other labels, and a page may have been replaced.
        drawn = json.dumps([image_digest(root / own[0].image), changes])
        tag = sha256(drawn.encode()).hexdigest()[:10]
        images[image_id] = made_name(own[0].image, f"-{tag}{TWIN_ENDING}")
        if not (root / images[image_id]).is_file():
            painted = stored_as(repaint(open_image(root, own[0].image), changes), "PNG", compress_level=3)
            write_whole(root / images[image_id], painted, make_parent=True)
    return twin_probes(probes, images, renamings)


def transcript_probes(probes: Sequence[Probe]) -> list[Probe]:
    """One request a page: all of its text, in reading order."""
    found = []
    for image_id, own in _by_page(probes).items():
        texts = own[0].extra.get("page", ())
        if not texts:
            continue
        said = "\n".join(str(text) for text, *_ in texts)
        found.append(
            replace(
                own[0],
                id=f"{image_id}:transcript",
                question=TRANSCRIBE,
                label="open",
                target_text="",
                source_text=said,
                regions=tuple(tuple(box) for _, *box in texts),
                roles=(),
                kind="transcript",
                answers=(said,),
                decoy="",
            )
        )
    return found


def _by_page(probes: Sequence[Probe]) -> dict[str, list[Probe]]:
    found: dict[str, list[Probe]] = {}
    for probe in probes:
        if probe.view == ORIGINAL:
            found.setdefault(probe.image_id, []).append(probe)
    return found


# Which arms suit a model, and whether it is served at all.


def refuse_unusable(model: str, asked: DocumentOptions) -> None:
    """Refuses what needs neither a page nor weights to be seen: reading many pages takes its time."""
    from sightline.arms.arm import parse_arms
    from sightline.backbones.base import weight_files
    from sightline.backbones.loading import Served, checkpoint_folder, choose_device

    refuse_unusable_place(asked.out)
    arms = parse_arms(choose_arms({}, asked.methods, asked.keep))
    detector_named(asked.ocr).require()
    if engine_of(model) is not None:
        return
    choose_device(asked.device)
    folder = checkpoint_folder(model)
    served = Served.by_description(folder)
    weight_files(folder, model)
    for arm in arms:
        if arm.selector.name in asked.methods:
            served.refuse(arm.selector, clip=False)


def prove_model(
    model: str,
    page: Path,
    sizes: Iterable[tuple[int, int]],
    keep: Sequence[float],
    out: Path,
    *,
    device: str,
    dtype: str,
) -> Mapping[str, Any]:
    """What doctor's quick part finds on a page of the documents; kept beside the run.

    A failed check is an error: rows of a model that is not read as it reads itself say nothing. ``resize`` says of each
    budget why pages of these sizes cannot be shown so small; empty where they can.
    """
    from sightline.backbones.base import weight_files
    from sightline.backbones.loading import checkpoint_folder

    wanted = sorted(set(sizes))
    files = weight_files(checkpoint_folder(model))
    weights = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    kept, asked = out / DOCTOR, json.dumps([model, weights, dtype, device, page.name, wanted, list(keep)])
    try:
        found = json.loads(kept.read_text("utf-8"))
    except (OSError, ValueError):
        found = {}
    if not isinstance(found, dict) or found.get("asked") != asked:
        from sightline.backbones import load_backbone
        from sightline.checks.doctor import examined

        backbone = load_backbone(model, dtype=dtype, device=device)
        seen = examined(backbone, open_image(page.parent, page.name), Path(model).name, methods=False)
        if seen.failed:
            why = "; ".join(check.words for check in seen.checks if not check.passed)
            raise SightlineError(f"{model} is not read as it reads itself: {why}; see sightline doctor --model {model}")

        def refused(share: float) -> str:
            try:
                for size in wanted:
                    backbone.fit(size, Budget.ratio(share))
            except SightlineError as error:
                return str(error)
            return ""

        found = {"asked": asked, **seen.as_dict(), "resize": {f"{share:g}": refused(share) for share in keep}}
        write_whole(kept, (json.dumps(found, ensure_ascii=False) + "\n").encode(), make_parent=True)
    return found


def choose_arms(served: Mapping[str, Any], methods: Sequence[str], keep: Sequence[float]) -> list[str]:
    """Full, the methods at each budget, and the controls at the same ones.

    ``served`` says of each selector whether the model serves it; without ``methods`` the first two that it does.
    """
    chosen = list(methods) or [name for name in METHODS if served.get(name) == "yes"][:2]
    budgets = [f"{share:g}" for share in keep_of(keep)]
    named = dict.fromkeys([*chosen, *CONTROLS])
    return ["full", *(f"{name}:{budget}" for budget in budgets for name in named)]


def keep_of(keep: Sequence[float]) -> list[float]:
    """The budgets as arms are called by them, largest first."""
    shares = [float(f"{share:g}") for share in keep or KEEP]
    if bad := [share for share in shares if not 0 < share < 1]:
        raise SightlineError(f"--keep {bad[0]:g} is not a share between 0 and 1, such as 0.3")
    return sorted(set(shares), reverse=True)
