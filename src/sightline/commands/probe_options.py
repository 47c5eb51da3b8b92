"""Arguments and options that the commands about probes share; above all, how annotations are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer
from typer.core import TyperCommand

from sightline.errors import SightlineError

if TYPE_CHECKING:
    from sightline.probes.dialects import Dialect
    from sightline.probes.region_records import Ingest

FORMAT_FLAG = "--format"
FORMAT_HELP = "Annotation format; seen from the file if left out."
ProbesArgument = Annotated[Path, typer.Argument(help="Probe file: Sightline's layout or the artifact's, plain or .gz.")]
PrefixOption = Annotated[
    str, typer.Option("--image-prefix", help="Leading folder of image names in the file to strip.")
]
ImagesOption = Annotated[Path | None, typer.Option("--images", help="Folder that image names are relative to.")]


@dataclass(frozen=True)
class AnnotationOptions:
    """How to read an annotation file. A field that only some formats know is called as the format calls it."""

    images: ImagesOption = None
    file_format: Annotated[str | None, typer.Option(FORMAT_FLAG, metavar="NAME", help=FORMAT_HELP)] = None
    format_option: Annotated[
        list[str] | None,
        typer.Option(
            "--format-option",
            metavar="NAME=VALUE",
            help="An option of the format; 'sightline probes formats' lists them. Repeatable.",
        ),
    ] = None
    order: Annotated[
        Literal["xywh", "xyxy"] | None,
        typer.Option("--boxes", help="regions, qa: order of the four numbers, where the file does not say."),
    ] = None
    units: Annotated[
        Literal["pixels", "normalised"] | None,
        typer.Option("--units", help="regions, csv, qa: unit of boxes, where the file does not say."),
    ] = None
    min_annotation_area: Annotated[
        float | None,
        typer.Option(
            "--min-annotation-area",
            help="textocr, coco_text: drop annotations of fewer square pixels.",
            show_default="1.0",
        ),
    ] = None
    pairing: Annotated[
        Literal["paired", "shifted"] | None,
        typer.Option("--pairing", help="textocr: each text with its box, or the artifact's shift after an empty text."),
    ] = None
    lines: Annotated[
        bool,
        typer.Option("--lines", help="Texts are lines: read lines where the format has both, find words within them."),
    ] = False
    profile: Annotated[
        Literal["paper", "artifact"],
        typer.Option(
            "--profile", help="artifact: --pairing shifted, --layout artifact, tiny pixel boxes read as fractions."
        ),
    ] = "paper"

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
