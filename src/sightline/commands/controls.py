"""``sightline controls build``: control sets from a probe file, with other images, moved boxes or other words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from pydantic import Field

from sightline.commands.options import with_options
from sightline.commands.probe_evidence import AnnotationOptions, ListsFormats, PrefixOption, ProbesArgument
from sightline.errors import SightlineError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sightline.core.probe import Probe
    from sightline.probes import ProbeSet

app = typer.Typer(
    help="Control sets: the same questions about changed images or with changed boxes.", no_args_is_help=True
)
build = typer.Typer(help="Make a control set from a probe file.", no_args_is_help=True)
app.add_typer(build, name="build")

FolderOption = Annotated[Path, Field(description="Folder for the control set.")]
LayoutOption = Annotated[
    Literal["sightline", "artifact"] | None,
    Field(description="Rows as Sightline's, or as the paper's artifact's (one file per condition)."),
]


@build.command("image-free", cls=ListsFormats)
@with_options
def image_free(
    probes: ProbesArgument,
    annotations: Path,
    out: FolderOption,
    reading: AnnotationOptions,
    seed: list[int] | None = None,
    image_prefix: PrefixOption = "",
    layout: LayoutOption = None,
) -> None:
    """The same questions about a gray image and about wrong images that show none of the words asked for."""
    from sightline.controls.image_free import SEEDS, blank_probes, image_free_probes, mismatch_view, mismatched_probes

    found = _read(probes, image_prefix, out)
    records = reading.read(annotations).records
    seeds = tuple(seed or SEEDS)
    control, mappings = image_free_probes(found.probes, records, seeds)
    if (layout or reading.usual_layout) == "sightline":
        _write(out / "image_free.jsonl", control, found, {"control": "image_free", "seeds": list(seeds)})
    else:
        _write(out / "blank.jsonl", blank_probes(found.probes, as_view=False), found, {}, image_prefix)
        for number, mapping in mappings.items():
            rows = mismatched_probes(found.probes, mapping, number, as_view=False)
            _write(out / f"{mismatch_view(number)}.jsonl", rows, found, {}, image_prefix)
    files = {probe.image_id: probe.image for probe in found.probes}
    lines = [
        {
            "seed": number, "source_image_id": source, "control_image_id": target,
            "source_image": files[source], "control_image": files[target],
        }
        for number, mapping in mappings.items()
        for source, target in sorted(mapping.items())
    ]  # fmt: skip
    _table(out / "image_mismatch_mapping.csv", lines)


@build.command("occlusion")
@with_options
def occlusion(
    probes: ProbesArgument,
    out: FolderOption,
    limit: Annotated[int | None, Field(ge=1)] = None,
    image_prefix: PrefixOption = "",
    layout: LayoutOption = "sightline",
) -> None:
    """Each question about its image, with the evidence grayed, and with as large a box grayed elsewhere."""
    from sightline.interventions.occlusion import SEED, occlusion_probes

    found = _read(probes, image_prefix, out)
    wanted = set(found.image_ids[:limit])
    control = occlusion_probes(probe for probe in found.probes if probe.image_id in wanted)
    prefix = image_prefix if layout == "artifact" else None
    _write(out / "occlusion.jsonl", control, found, {"control": "occlusion", "seed": SEED}, prefix)


@build.command("boxes")
@with_options
def boxes(
    probes: ProbesArgument,
    out: FolderOption,
    variant: list[str] | None = None,
    image_prefix: PrefixOption = "",
    layout: LayoutOption = "sightline",
) -> None:
    """One probe file per simulated detector: boxes lost, moved, joined by spurious ones; regions as they are."""
    from dataclasses import asdict

    from sightline.boxes.quality import BoxQuality
    from sightline.boxes.sources import SEED, VARIANTS, noise_probes

    found = _read(probes, image_prefix, out)
    quality = []
    for name in variant or list(VARIANTS):
        if name not in VARIANTS:
            raise SightlineError(f"unknown noise variant '{name}'; choose from {', '.join(VARIANTS)}")
        control = noise_probes(found.probes, name)
        construction = {"control": "boxes", "variant": name, "seed": SEED, **asdict(VARIANTS[name])}
        _write(out / f"{name}.jsonl", control, found, construction, image_prefix if layout == "artifact" else None)
        quality.append({"variant": name, **asdict(BoxQuality.of(control))})
    _table(out / "quality.csv", quality)


@build.command("text-replacement")
@with_options
def text_replacement(
    probes: ProbesArgument,
    images: Path,
    out: FolderOption,
    limit: Annotated[int, Field(ge=0)] = 100,
    equal_length: bool = False,
    fonts: Path | None = None,
    screen: str = "rapidocr",
    decisions: Path | None = None,
    image_prefix: PrefixOption = "",
) -> None:
    """The decoy painted where the word stood, a sham with the word repainted, and an erasure; images in OUT/images."""
    from sightline.controls.text_replacement import (
        Screen,
        edit_region_probe,
        font_files,
        replacements,
        reviewed_images,
        save_versions,
        version_probes,
    )

    found = _read(probes, image_prefix, out)
    valid = None if decisions is None else reviewed_images(decisions)
    chosen = [probe for probe in found.probes if valid is None or probe.image_id in valid]
    engine = None if screen == "none" else Screen(screen)
    skipped: Counter[str] = Counter()
    try:
        made = replacements(
            chosen,
            images,
            fonts=fonts,
            limit=limit or None,
            equal_length=equal_length,
            skipped=skipped,
            accept=engine or (lambda replaced: True),
        )
    finally:
        # Also where no image passed: what was read there is all that a person has to go by.
        if engine is not None and engine.results:
            _table(out / "screening.csv", [result.record() for result in engine.results])
    save_versions(made, images, out / "images")
    construction = {
        "control": "text_replacement",
        "screen": screen,
        "fonts": [file.name for file in font_files(fonts)],
        "equal_length": equal_length,
        "reviewed": valid is not None,
    }
    every = [p for one in made for p in version_probes(one, Path(one.positive.image).suffix)]
    _write(out / "text_replacement.jsonl", every, found, construction)
    glyphs = [p for one in made if (p := edit_region_probe(one)) is not None]
    if glyphs:
        _write(out / "edit_region.jsonl", glyphs, found, {**construction, "control": "edit_region"})
    counted = ", ".join(f"{count} {reason}" for reason, count in skipped.most_common())
    typer.echo(
        f"replaced     {len(made)} images, {len(glyphs)} by a single character"
        + (f"; left out {counted}" if counted else "")
    )


def _read(path: Path, image_prefix: str, out: Path) -> ProbeSet:
    """The probes, once it is known that a control set of them can be written."""
    from sightline.places.writing import refuse_unusable_place
    from sightline.probes import read_probes

    refuse_unusable_place(out)
    return read_probes(path, image_prefix=image_prefix or None)


def _write(
    path: Path, probes: Iterable[Probe], source: ProbeSet, construction: dict[str, Any], prefix: str | None = None
) -> None:
    """In our layout, or in the artifact's when ``prefix`` (its image root) is given."""
    from sightline.places.writing import make_folder
    from sightline.probes import write_probes

    make_folder(path.parent)
    rows = list(probes)
    if prefix is None:
        origin = {"probes_digest": source.digest}
        written = write_probes(path, rows, construction=construction, source=origin)
    else:
        written = write_probes(path, rows, layout="artifact", image_prefix=prefix)
    typer.echo(f"wrote        {path}: {len(written)} probes, {written.digest[:19]}...")


def _table(path: Path, rows: list[dict[str, Any]]) -> None:
    import pandas as pd

    from sightline.core.text import write_csv
    from sightline.places.writing import make_folder

    make_folder(path.parent)
    write_csv(path, pd.DataFrame(rows))
    typer.echo(f"wrote        {path}: {len(rows)} rows")
