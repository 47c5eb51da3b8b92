"""``sightline probes evidence``, ``annotation-pack``, ``region-noise``: what open questions are audited against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from pydantic import BaseModel, Field
from typer.core import TyperCommand

from sightline.commands.options import PAIR, Written, in_words, with_options
from sightline.core.flags import Flag
from sightline.errors import SightlineError
from sightline.progress import say

if TYPE_CHECKING:
    from sightline.core.probe import Probe
    from sightline.probes import ProbeSet
    from sightline.probes.dialects import Dialect
    from sightline.probes.evidence import Evidence
    from sightline.probes.regions import Ingest


# Arguments and options that the commands about probes share; above all, how annotations are read.

FORMAT_FLAG = "--format"
FORMAT_HELP = "Annotation format; seen from the file if left out."
ProbesArgument = Annotated[Path, typer.Argument(help="Probe file: Sightline's layout or the artifact's, plain or .gz.")]
PrefixOption = Annotated[str, Field(description="Leading folder of image names in the file to strip.")]
ImagesOption = Annotated[Path | None, Field(description="Folder that image names are relative to.")]


@in_words
class AnnotationOptions(BaseModel):
    """How to read an annotation file. A field that only some formats know is called as the format calls it."""

    images: Path | None = None
    file_format: Annotated[str | None, Flag(name=FORMAT_FLAG, metavar="NAME")] = Field(None, description=FORMAT_HELP)
    format_option: Annotated[list[str] | None, Flag(metavar=PAIR)] = None
    order: Annotated[Literal["xywh", "xyxy"] | None, Flag(name="--boxes")] = None
    units: Literal["pixels", "normalised"] | None = None
    min_annotation_area: Annotated[float | None, Flag(shown="1.0")] = None
    pairing: Literal["paired", "shifted"] | None = None
    lines: bool = False
    profile: Literal["paper", "artifact"] = "paper"

    @property
    def usual_layout(self) -> Dialect:
        """What is written unless ``--layout`` says otherwise."""
        return "artifact" if self.profile == "artifact" else "sightline"

    def read(self, annotations: Path | Sequence[Path]) -> Ingest:
        """What a file holds; several files are shards of one data set."""
        from sightline.probes.annotations import read_annotations

        flags = {name: getattr(self, name) for name in ("order", "units", "min_annotation_area", "pairing")}
        options: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
        for text in self.format_option or []:
            name, equals, value = text.partition("=")
            if not equals:
                raise SightlineError(f"--format-option '{text}' has no value; write {name}=VALUE")
            options[name.strip().replace("-", "_")] = value
        return read_annotations(
            annotations,
            options,
            file_format=self.file_format,
            profile=self.profile,
            images=self.images,
            lines=self.lines,
        )


class ListsFormats(TyperCommand):
    """A command whose help names the formats. They are looked up when somebody asks for help, not at every start."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from sightline.probes.formats import FORMATS

        for parameter in self.params:
            if FORMAT_FLAG in parameter.opts:
                cast(Any, parameter).help = f"{FORMAT_HELP} One of: {', '.join(FORMATS)}."
        super().format_help(ctx, formatter)


def add_commands(app: typer.Typer) -> None:
    """Adds the three commands to the group."""
    app.command(cls=ListsFormats)(evidence)
    app.command("annotation-pack")(annotation_pack)
    app.command("region-noise")(region_noise)


@with_options
def evidence(
    probes: ProbesArgument,
    out: Annotated[Path, Written(".jsonl")],
    reading: AnnotationOptions,
    questions: list[Path] | None = None,
    ocr: Path | None = None,
    line_context: bool = False,
    typed: Path | None = None,
    complete: bool = False,
    only: bool = False,
) -> None:
    """Give open questions their regions and roles: what coverage is audited against, and no selector sees."""
    from collections import Counter

    from sightline.probes import read_probes, write_probes
    from sightline.probes.evidence import with_evidence

    found = read_probes(probes)
    _refuse_other_than_open(found, probes)
    named = {"questions": questions, "ocr": ocr, "typed": typed}
    given = [name for name, value in named.items() if value]
    if len(given) != 1:
        raise SightlineError("say where evidence comes from with one of --questions, --ocr and --typed")
    if line_context and not ocr:
        raise SightlineError("--line-context is for --ocr")
    if complete and not typed:
        raise SightlineError("--complete is for --typed")
    regions, source = _found(found, reading, questions, ocr, line_context, typed, complete)
    if not regions:
        raise SightlineError(f"no evidence for any of the {len(found)} questions; are they the same images and ids?")
    kept = [probe for probe in with_evidence(found.probes, regions) if not only or probe.id in regions]
    construction = {**found.construction, "evidence": {"from": given[0], **source}}
    written = write_probes(out, kept, construction=construction, source=found.source)
    roles = Counter(role for each in regions.values() for role in each.roles)
    boxes = sum(len(each.regions) for each in regions.values())
    say(f"evidence     {len(regions)} of {len(found)} questions, {boxes} regions ({_counted(roles)})")
    say(f"wrote        {out}")
    say(f"digest       {written.digest}")


def _found(
    found: ProbeSet,
    reading: AnnotationOptions,
    questions: list[Path] | None,
    ocr: Path | None,
    line_context: bool,
    typed: Path | None,
    complete: bool,
) -> tuple[dict[str, Evidence], dict[str, Any]]:
    """Evidence by probe id, and what it was made from."""
    from sightline.probes.data_rows import file_digest
    from sightline.probes.evidence import evidence_of_questions, evidence_of_words
    from sightline.probes.typed_rows import ANNOTATED, evidence_of_rows, read_typed_rows

    if questions:
        ingest = reading.read(questions)
        return evidence_of_questions(found.probes, ingest.probes), dict(ingest.source)
    if ocr is not None:
        ingest = reading.read(ocr)
        size_of = _size_of(reading.images or ingest.images) if line_context else None
        source = {**ingest.source, "line_context": line_context}
        return evidence_of_words(found.probes, ingest.records, size_of), source
    assert typed is not None
    rows = read_typed_rows(typed, complete=complete)
    ids = {probe.id for probe in found.probes}
    if not any(row.sample_id in ids for row in rows):
        raise SightlineError(f"{typed}: none of its {len(rows)} rows is about a question here; {rows[0].sample_id} say")
    if not any(row.status == ANNOTATED for row in rows if row.sample_id in ids):
        raise SightlineError(f"{typed}: no row is {ANNOTATED}; {rows[0].sample_id} is {rows[0].status}")
    source = {"annotations": typed.name, "digest": file_digest(typed)}
    return evidence_of_rows(found.probes, rows, _size_of(reading.images)), source


@with_options
def annotation_pack(
    probes: ProbesArgument,
    images: Path,
    out: Path,
) -> None:
    """Write what people need to draw evidence: a row per question, and its image as they will see it.

    Regions that a question has already are drawn for review. Images are RGB JPEGs whose longest side has at most 1600
    pixels; the rows' boxes are in their pixels, and ``sightline probes evidence --typed`` reads them back.
    """
    from sightline.probes import read_probes
    from sightline.probes.images import open_image
    from sightline.probes.typed_rows import JPEG_QUALITY, shown_size, typed_row, write_typed_rows

    found = read_probes(probes)
    _refuse_other_than_open(found, probes)
    size_of = _size_of(images)
    write_typed_rows(out / "annotations.jsonl", [typed_row(probe, *size_of(probe.image)) for probe in found.probes])
    for name in found.images:
        target = (out / "images" / name).with_suffix(".jpg")
        target.parent.mkdir(parents=True, exist_ok=True)
        image = open_image(images, name)
        image.resize(shown_size(*image.size)).save(target, format="JPEG", quality=JPEG_QUALITY)
    say(f"wrote        {out / 'annotations.jsonl'}: {len(found)} rows")
    say(f"wrote        {out / 'images'}: {len(found.images)} images")


@with_options
def region_noise(
    probes: ProbesArgument,
    images: ImagesOption = None,
    out: Path = Path("noise"),
    variant: list[str] | None = None,
) -> None:
    """Damage the regions of a probe set, which coverage is audited against: moved, resized, lost."""
    from dataclasses import asdict

    from sightline.boxes.quality import AUDIT_SEED, AUDIT_VARIANTS, noisy_regions
    from sightline.probes import read_probes, write_probes
    from sightline.probes.typed_rows import shown_size

    found = read_probes(probes)
    regions = sum(len(probe.regions) for probe in found.probes)
    if not regions:
        raise SightlineError(f"{probes}: no probe has a region; give them some with sightline probes evidence")
    size_of = _size_of(images)
    for name in variant or list(AUDIT_VARIANTS):
        noisy = noisy_regions(found.probes, name, lambda image: shown_size(*size_of(image)))
        how = {"variant": name, "seed": AUDIT_SEED, **asdict(AUDIT_VARIANTS[name]), "of": found.digest}
        path = out / f"{name}.jsonl"
        write_probes(path, noisy, construction={**found.construction, "region_noise": how}, source=found.source)
        say(f"wrote        {path}: {sum(len(probe.regions) for probe in noisy)} of {regions} regions left")


def _refuse_other_than_open(found: ProbeSet, path: Path) -> None:
    other: Probe | None = next((probe for probe in found.probes if not probe.is_open), None)
    if other is not None:
        raise SightlineError(f"{path}: probe '{other.id}' is a yes/no question; its regions come from how it was built")


def _size_of(images: Path | None) -> Callable[[str], tuple[int, int]]:
    """Width and height of an image by its name, from the file's header, each read once."""
    from functools import cache

    from sightline.probes.fetched_images import resolve_image
    from sightline.probes.images import image_size

    if images is None:
        raise SightlineError("boxes in pixels need the images: give their folder with --images")
    return cache(lambda name: image_size(resolve_image(images, name)))


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "untyped"
