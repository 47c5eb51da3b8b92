"""``sightline probes``: build, audit, split, lock and look at probe sets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar

import typer
from pydantic import BaseModel, Field

from sightline.commands.options import Written, in_words, with_options
from sightline.commands.probe_evidence import (
    AnnotationOptions,
    ImagesOption,
    ListsFormats,
    PrefixOption,
    ProbesArgument,
    add_commands,
)
from sightline.core.flags import Flag
from sightline.errors import SightlineError, printable
from sightline.progress import say

if TYPE_CHECKING:
    from sightline.core.probe import Probe
    from sightline.probes import HardPairRules, Ingest, ProbeSet

T = TypeVar("T")

app = typer.Typer(help="Build, audit, split, lock and look at probe sets.", no_args_is_help=True)

AnnotationsOption = Annotated[
    Path,
    Field(description="File in one of the known formats, plain or .gz; or a folder of page files."),
]
LayoutOption = Annotated[
    Literal["sightline", "artifact"] | None,
    Field(description="Rows as Sightline's or as the paper's artifact's."),
]
OutPrefixOption = Annotated[
    str,
    Field(description="Artifact layout: folder written before every image name (its image root)."),
]


@in_words
class WordOptions(BaseModel):
    """Which words hard pairs ask for, and how they are drawn: fields of ``HardPairRules``."""

    version: Annotated[
        Literal["development-v1", "confirmation-v2", "strict-v3"] | None,
        Flag(shown="confirmation-v2; with --lines strict-v3"),
    ] = None
    seed: int = 17
    shuffle_images: Annotated[bool, Flag(name="--shuffle-images/--no-shuffle-images")] = False
    min_length: int = 4
    max_length: int = 18
    min_area: float = 5e-5
    max_area: float = 1.2e-3
    pool: int = 8
    max_symbol_share: float = 0.35
    unique: bool = True
    negatives: bool = True


@app.command(cls=ListsFormats)
@with_options
def build(
    out: Annotated[Path, Written(".jsonl")],
    reading: AnnotationOptions,
    words: WordOptions,
    files: Annotated[list[Path] | None, typer.Argument(metavar="FILE", show_default=False)] = None,
    annotations: Path | None = None,
    check_images: bool = True,
    limit: Annotated[int | None, Flag(shown="500; of open questions all"), Field(ge=0)] = None,
    exclude: list[Path] | None = None,
    sample: Annotated[int | None, Field(ge=1)] = None,
    decoys: bool = True,
    layout: LayoutOption = None,
    image_prefix: OutPrefixOption = "",
    ocr: str | None = None,
    questions: Path | None = None,
    texts: Path | None = None,
) -> None:
    """Build hard pairs: per image one small word that is there, and a near miss of it that is not.

    Annotations that ask their own questions become probes as they are: yes/no of gsr, open ones of textvqa, docvqa,
    ocrbench and qa. Images that lie inside parquet files are unpacked into --images, once.
    """
    from dataclasses import replace

    from sightline.probes import HardPairRules, write_probes
    from sightline.probes.annotations import check_image_sizes
    from sightline.probes.probe_file import read_image_ids

    if ocr is not None:
        _ask_documents(_given_files(files, annotations), out, ocr, questions, limit, words.seed, texts)
        return
    if texts is not None:
        raise SightlineError("--texts says which texts of documents people have read; it goes with --ocr")
    rules = HardPairRules(
        **words.model_dump(exclude={"version"}),
        version=words.version or ("strict-v3" if reading.lines else "confirmation-v2"),
        limit_images=(500 if limit is None else limit) or None,
        lines=reading.lines,
    )
    excluded = frozenset[str]().union(*(read_image_ids(path) for path in exclude or []))
    read = _given_files(files, annotations)
    ingest = reading.read(read)
    asks_open = any(probe.is_open for probe in ingest.probes)
    if asks_open and limit is None:
        rules = replace(rules, limit_images=None)
    _say("read", ", ".join(ingest.counts.notes()))
    images = reading.images or ingest.images
    if check_images and images is None and ingest.packed is not None:
        raise SightlineError(f"{read[0]} holds the images; say with --images where they are to be unpacked")
    if check_images and images is None:
        raise SightlineError(
            "give the image folder with --images, or --no-check-images to build without looking at images"
        )
    written_as = layout or reading.usual_layout
    if ingest.probes:
        if written_as == "artifact":
            raise SightlineError("the artifact's layout is that of hard pairs; leave out --layout and --profile")
        probes, construction, said = _given(ingest, rules, excluded, read[0], sample, decoys and asks_open)
    elif sample is not None:
        raise SightlineError(f"--sample draws from questions that a file asks; {read[0]} holds words")
    else:
        probes, construction, said = _hard_pairs(ingest, rules, excluded, read[0])
    unpacked = 0
    if ingest.packed is not None and images is not None:
        unpacked = ingest.packed.unpack(images, {probe.image for probe in probes}, _progress("unpacking images"))
    if check_images and images is not None:
        used = {probe.image_id for probe in probes}
        records = [record for record in ingest.records if record.image_id in used]
        check_image_sizes(images, records, progress=_progress("checking images"))
    if excluded:
        digest = sha256("\n".join(sorted(excluded)).encode()).hexdigest()
        construction["excluded_images"] = {"count": len(excluded), "digest": f"sha256:{digest}"}
    written = write_probes(
        out, probes, construction=construction, source=ingest.source, layout=written_as, image_prefix=image_prefix
    )
    if ingest.packed is not None and images is not None:
        _say("unpacked", f"{unpacked} of {len(written.images)} images into {images}")
    elif reading.images is None and images is not None:
        _say("images", str(images))
    _say("built", _build_line(written, said.notes, rules.limit_images or 0))
    if said.shortage:
        _say("no candidate", said.shortage)
    _say("wrote", str(out))
    _say("digest", written.digest)


def _ask_documents(
    documents: list[Path], out: Path, ocr: str, questions: Path | None, limit: int | None, seed: int, texts: Path | None
) -> None:
    """Questions about the fields of plain documents; pages that had to be made stand beside the probe file."""
    from sightline.documents.audit import write_questions
    from sightline.documents.build import build_document_probes

    built = build_document_probes(
        documents, out.parent, questions=questions, ocr=ocr, limit_pages=limit or None, seed=seed, gather=True,
        accepted=texts,
    )  # fmt: skip
    for line in built.lines:
        say(line)
    _say("images", str(built.root))
    files = write_questions(built, out)
    _say("wrote", f"{files.probes}: the open questions, and about twins of the pages" if files.pairs else str(out))
    if files.pairs:
        _say("", f"{files.pairs}: the yes/no questions")
    _say("", f"{files.transcripts}: what --scorer transcription asks for")
    _say("", f"{built.pages_file}: all that was read")
    _say("digest", files.digest)


def _given_files(files: list[Path] | None, annotations: Path | None) -> list[Path]:
    """The annotations, however they were named."""
    given = [*(files or []), *([annotations] if annotations is not None else [])]
    if not given:
        raise SightlineError("name the annotations: sightline probes build FILE, or --annotations FILE")
    from sightline.probes.hub_data import hub_files, is_hub_data

    return [file for source in given for file in (hub_files(source) if is_hub_data(source) else [source])]


class _Said(NamedTuple):
    """What is told about images that gave nothing."""

    notes: dict[str, int]
    """Why -> how many images."""
    shortage: str = ""


def _hard_pairs(
    ingest: Ingest, rules: HardPairRules, excluded: frozenset[str], annotations: Path
) -> tuple[tuple[Probe, ...], dict[str, Any], _Said]:
    """Probes, how they were made, and what to say about it."""
    from dataclasses import asdict

    from sightline.probes import build_hard_pairs

    pairs = build_hard_pairs(ingest.records, rules, exclude=excluded, progress=_progress("building"))
    if not pairs.probes:
        counts = f"{pairs.images_without_candidate} without a candidate word, {pairs.excluded_images} excluded"
        reasons = filter(None, (f"no image of {annotations} gave a probe ({counts})", pairs.shortage.in_words()))
        raise SightlineError("; ".join(reasons))
    notes = {
        "without a candidate word": pairs.images_without_candidate,
        "excluded": pairs.excluded_images,
        "without a decoy": pairs.images_without_decoy,
    }
    shortage = pairs.shortage.in_words() if pairs.images_without_candidate else ""
    return pairs.probes, {"name": "hard-pairs", **asdict(rules)}, _Said(notes, shortage)


def _given(
    ingest: Ingest, rules: HardPairRules, excluded: frozenset[str], annotations: Path, sample: int | None, decoys: bool
) -> tuple[tuple[Probe, ...], dict[str, Any], _Said]:
    """The same for annotations that bring their own questions."""
    import random
    from dataclasses import replace

    from sightline.probes.questions import add_decoys, refuse_word_rules, sample_questions, take_questions

    refuse_word_rules(rules, str(ingest.source["format"]))
    if sample is not None and rules.shuffle_images:
        raise SightlineError("--sample draws at random already; leave out --shuffle-images")
    rng = random.Random(rules.seed)
    taken = take_questions(ingest.probes, rules if sample is None else replace(rules, limit_images=None), excluded)
    probes = taken.probes
    how: dict[str, Any] = {name: getattr(rules, name) for name in ("seed", "limit_images", "shuffle_images")}
    if sample is not None:
        drawn = sample_questions(probes, sample, rng, ingest.kinds)
        probes = take_questions(drawn, rules).probes
        how["sample"] = sample
    if decoys:
        probes = add_decoys(probes, ingest.probes, rng)
        how["decoys"] = True
    if not probes:
        raise SightlineError(f"no image of {annotations} gave a probe ({taken.excluded_images} excluded)")
    return probes, {"name": ingest.source["format"], **how}, _Said({"excluded": taken.excluded_images})


@app.command(cls=ListsFormats)
@with_options
def regions(
    annotations: AnnotationsOption,
    out: Annotated[Path, Written(".jsonl")],
    reading: AnnotationOptions,
    layout: LayoutOption = None,
    image_prefix: OutPrefixOption = "",
) -> None:
    """Convert annotations to regions JSONL: one image per line, boxes as fractions, each text with its box."""
    from sightline.probes import write_regions

    ingest = reading.read(annotations)
    write_regions(out, ingest.records, layout=layout or reading.usual_layout, image_prefix=image_prefix)
    _say("read", ", ".join(ingest.counts.notes()))
    _say("wrote", str(out))


@app.command()
def formats() -> None:
    """List the annotation formats and their options, with defaults in brackets."""
    from sightline.probes.formats.base import FORMATS, options_of

    for name, kind in FORMATS.items():
        _say(name, kind.description)
        for option, said in options_of(kind).items():
            default = getattr(kind, option, None)
            usual = "" if default is None else f" [{default!r}]"
            _say("", f"{said.flag:<30} {said.help}{usual}")
    for reason in FORMATS.broken().values():
        say(f"broken: {reason}")


@app.command(cls=ListsFormats)
@with_options
def audit(
    probes: ProbesArgument,
    regions: Path,
    reading: AnnotationOptions,
    out: Path | None = None,
    image_prefix: PrefixOption = "",
) -> None:
    """Audit the wording of the negatives: does a decoy stand in its image, or elsewhere in the data?"""
    from sightline.core.table import print_rows
    from sightline.probes import audit_negatives, read_probes
    from sightline.probes.lexical_audit import headline, write_audit
    from sightline.progress import SafeConsole

    found = read_probes(probes, image_prefix=image_prefix)
    ingest = reading.read(regions)
    result = audit_negatives(found.probes, ingest.records)
    print_rows(SafeConsole(), ("negatives", str(len(result.findings))), headline(result), title="Lexical audit")
    for finding in result.suspicious[:10]:
        words = f"{printable(finding.probe.source_text)} -> {printable(finding.probe.target_text)}"
        _say("look at", f"{finding.probe.id}  {words}  ({', '.join(finding.reasons)})")
    for path in write_audit(out, result) if out else []:
        _say("wrote", str(path))


@app.command()
@with_options
def split(
    probes: ProbesArgument,
    out: Path | None = None,
    group_by: Literal["image", "record", "probe"] = "image",
    dev_buckets: Annotated[int, Field(ge=1, le=9)] = 5,
    rule: Annotated[Literal["sha1", "md5"], Flag(name="--hash")] = "sha1",
    image_prefix: PrefixOption = "",
) -> None:
    """Split by a hash of the image, so that an image's probes stay together and never change sides."""
    from sightline.probes import ProbeSet, read_probes, split_probes, write_probes

    if rule == "md5" and dev_buckets != 5:
        raise SightlineError("--hash md5 halves the set; --dev-buckets is for --hash sha1")
    found = read_probes(probes, image_prefix=image_prefix)
    for side, part in split_probes(found.probes, group_by=group_by, dev_buckets=dev_buckets, rule=rule).items():
        _say(side, f"{len(part)} probes, {len(ProbeSet(part).image_ids)} images")
        if out is not None:
            how: dict[str, Any] = {"side": side, "group_by": group_by, "dev_buckets": dev_buckets, "of": found.digest}
            if rule != "sha1":
                how["hash"] = rule
            construction = {**found.construction, "split": how}
            write_probes(out / f"{side}.jsonl", part, construction=construction, source=found.source)
            _say("wrote", str(out / f"{side}.jsonl"))


@app.command()
@with_options
def lock(
    probes: ProbesArgument,
    images: ImagesOption = None,
    replace: bool = False,
    image_prefix: PrefixOption = "",
) -> None:
    """Write PROBES.lock.json: digests of the set, of every probe and, with --images, of every image."""
    from sightline.probes import lock_probes, read_probes

    found = read_probes(probes, image_prefix=image_prefix)
    path = lock_probes(probes, found, images=_image_digests(found, images), replace=replace)
    _say("locked", f"{len(found)} probes" + (f", {len(found.images)} images" if images else ""))
    _say("digest", found.digest)
    _say("wrote", str(path))


def verify_probes(probes: Path, images: Path | None, image_prefix: str) -> None:
    """``sightline verify`` of a probe file: against its lock or, without one, its own digest; are its images there?"""
    from sightline.probes import read_probes, verify_lock
    from sightline.probes.probe_file import lock_path

    locked = lock_path(probes).exists()
    # With a lock, let it speak first: it can say which probes changed, the digest only that something did.
    found = read_probes(probes, image_prefix=image_prefix, check_digest=not locked)
    digests = _image_digests(found, images)
    compared = 0
    if locked:
        known = verify_lock(probes, found, images=digests).images
        compared = sum(name in known for name in digests)
        read_probes(probes, image_prefix=image_prefix)
    elif found.layout == "artifact":
        raise SightlineError(f"{probes} has neither a lock nor a digest to verify against; lock it first")
    _say("intact", f"{len(found)} probes {'as locked' if locked else 'as in their digest'}")
    if images:
        _say("images", f"{len(digests)} present, {compared} of them compared with the lock")
    _say("digest", found.digest)


@app.command()
@with_options
def show(probes: ProbesArgument, examples: Annotated[int, Field(ge=0)] = 4, image_prefix: PrefixOption = "") -> None:
    """Print counts, digest, construction and a few probes."""
    from collections import Counter

    from sightline.probes import read_probes

    found = read_probes(probes, image_prefix=image_prefix)
    _say("probes", f"{len(found)} ({_label_counts(found)})")
    _say("images", str(len(found.image_ids)))
    for name, values in (("kinds", (p.kind for p in found.probes)), ("views", (p.view for p in found.probes))):
        _say(name, ", ".join(f"{count} {printable(value)}" for value, count in Counter(values).items()))
    _say("layout", found.layout)
    _say("digest", found.digest)
    for name in ("construction", "source"):
        for key, value in getattr(found, name).items():
            _say(name, printable(f"{key} = {value}"))
    for probe in found.probes[:examples]:
        answer = f"  {probe.answers[0]}" if probe.is_open else ""
        _say(probe.label, printable(f"{probe.question}{answer}  [{probe.id}]"))


add_commands(app)


def _build_line(written: ProbeSet, notes: Mapping[str, int], wanted: int) -> str:
    images = len(written.image_ids)
    line = f"{len(written)} probes ({_label_counts(written)}) from {images} images"
    if wanted and images < wanted:
        line += f" of {wanted} asked for"
    return "; ".join([line, *(f"{count} images {what}" for what, count in notes.items() if count)])


def _label_counts(found: ProbeSet) -> str:
    """How many probes are answered with yes, no or a text; yes and no are both named where there is either."""
    from collections import Counter

    labels = Counter(probe.label for probe in found.probes)
    binary = labels["yes"] + labels["no"] or not labels
    parts = [f"{labels['yes']} yes, {labels['no']} no"] if binary else []
    return ", ".join([*parts, *([f"{labels['open']} open"] if labels["open"] else [])])


def _image_digests(found: ProbeSet, images: Path | None) -> dict[str, str]:
    if images is None:
        return {}
    from sightline.probes.images import image_digests

    return image_digests(images, found.images, progress=_progress("reading images"))


def _say(label: str, text: str) -> None:
    from rich.text import Text

    from sightline.progress import SafeConsole

    SafeConsole().print(Text.assemble((f"{label:<13}", "bold"), text), soft_wrap=True)


def _progress(what: str) -> Callable[[Iterable[T]], Iterable[T]]:
    """A progress bar on stderr, only where somebody is watching."""

    def track(rows: Iterable[T]) -> Iterable[T]:
        from rich.progress import track as rich_track

        from sightline.progress import SafeConsole

        console = SafeConsole(stderr=True)
        return rich_track(rows, what, console=console, transient=True, disable=not console.is_terminal)

    return track
