"""The yes/no probe sets that tables ask for: hard pairs on TextOCR, their controls, and GSR-Bench's relations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sightline.controls.text_replacement import Replaced, Skipped, edit_region_probe, version_probes
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.paper.study import Built, NothingToAskError, Study, built_probes, built_set, probe_set
from sightline.probes import HardPairRules, build_hard_pairs

DEVELOPMENT, CONFIRMATION = "development", "confirmation"
REPLACEMENT, EDIT_REGION = "replacement", "edit-region"
GSR, GSR_SLICE = "gsr", "gsr-slice"
PAPER_RULES: dict[str, dict[str, Any]] = {
    DEVELOPMENT: {"version": "development-v1", "seed": 17},
    CONFIRMATION: {"version": "confirmation-v2", "seed": 20_260_720, "shuffle_images": True},
}
IMAGES = 500
OCCLUDED = {"qwen": "development-first-100", "llava": "development-first-50", "internvl": "development-first-50"}
"""Images whose evidence is grayed: the first of the development set."""
TEXTOCR = "textocr/TextOCR_0.1_val.json"
TEXTOCR_IMAGES = "--images textocr/train_images --image-prefix train"
"""As the archive unpacks: the file says ``train/ID.jpg``."""


def _hard_pairs(study: Study, rules: dict[str, Any], exclude: Iterable[str] = ()) -> Built:
    wanted = IMAGES if study.limit is None else study.limit
    settings: dict[str, Any] = {**rules, **study.source.word_areas, "limit_images": wanted}
    chosen = HardPairRules(**settings)
    found = build_hard_pairs(study.source.ingest.records, chosen, exclude=frozenset(exclude))
    images = len({probe.image_id for probe in found.probes})
    if images < wanted:
        raise SightlineError(
            f"{study.source.annotations} gives only {images} of {wanted} images with a small word; "
            "take the whole validation part, or a smaller --limit"
        )
    return Built(found.probes, {"name": "hard-pairs", **settings}, None)


@probe_set(
    DEVELOPMENT,
    "TextOCR-Hard development: 500 images in annotation order, construction v1, seed 17",
    f"sightline probes build {TEXTOCR} --version development-v1 --seed 17 --out probes/development.jsonl",
    images=TEXTOCR_IMAGES,
)
def development(study: Study) -> Built:
    return _hard_pairs(study, PAPER_RULES[DEVELOPMENT])


@probe_set(
    CONFIRMATION,
    "TextOCR-Hard confirmation: 500 other images, shuffled, construction v2, seed 20260720, locked",
    f"sightline probes build {TEXTOCR} --seed 20260720 --shuffle-images --exclude probes/development.jsonl "
    "--out probes/confirmation.jsonl",
    images=TEXTOCR_IMAGES,
)
def confirmation(study: Study) -> Built:
    _, seen = built_probes(study, DEVELOPMENT)
    return _hard_pairs(study, PAPER_RULES[CONFIRMATION], seen.image_ids)


def _first(study: Study, images: int) -> Built:
    _, found, root = built_set(study, DEVELOPMENT)
    ids = set(found.image_ids[:images])
    return Built([probe for probe in found.probes if probe.image_id in ids], {"first_images": images}, root)


@probe_set(
    OCCLUDED["qwen"],
    "the first 100 images of the development set",
    "the development set, of which the run takes 100 images",
    file="probes/development.jsonl --limit 100",
    images=TEXTOCR_IMAGES,
)
def first_hundred(study: Study) -> Built:
    return _first(study, 100)


@probe_set(
    OCCLUDED["llava"],
    "the first 50 images of the development set",
    "the development set, of which the run takes 50 images",
    file="probes/development.jsonl --limit 50",
    images=TEXTOCR_IMAGES,
)
def first_fifty(study: Study) -> Built:
    return _first(study, 50)


def _image_free(study: Study, of: str) -> Built:
    from sightline.controls.image_free import SEEDS, image_free_probes

    _, found, root = built_set(study, of)
    control, _ = image_free_probes(found.probes, study.source.ingest.records)
    return Built(control, {"control": "image_free", "of": of, "seeds": list(SEEDS)}, root)


@probe_set(
    "confirmation-image-free",
    "confirmation questions on their images, on gray, and on wrong images (seeds 101, 202, 303)",
    f"sightline controls build image-free probes/confirmation.jsonl --annotations {TEXTOCR} "
    "--out probes/confirmation-image-free",
    file="probes/confirmation-image-free/image_free.jsonl",
    images=TEXTOCR_IMAGES,
)
def confirmation_image_free(study: Study) -> Built:
    return _image_free(study, CONFIRMATION)


@probe_set(
    "development-image-free",
    "development questions on their images, on gray, and on wrong images (seeds 101, 202, 303)",
    f"sightline controls build image-free probes/development.jsonl --annotations {TEXTOCR} "
    "--out probes/development-image-free",
    file="probes/development-image-free/image_free.jsonl",
    images=TEXTOCR_IMAGES,
)
def development_image_free(study: Study) -> Built:
    return _image_free(study, DEVELOPMENT)


def _replaced(study: Study) -> tuple[list[Replaced], Path]:
    """Confirmation images with their word repainted, screened by an OCR engine and, where given, by people."""
    from sightline.controls.text_replacement import Screen, replacements, reviewed_images, save_versions

    _, found, root = built_set(study, CONFIRMATION)
    probes: Sequence[Probe] = found.probes
    if study.options.decisions is not None:
        valid = reviewed_images(study.options.decisions)
        probes = [probe for probe in probes if probe.image_id in valid]
    engine = study.detector
    # A page that was drawn for a demonstration is small: what an engine makes of its words is no test of them.
    screen = Screen(engine) if engine and not study.options.demo else None
    made = replacements(
        probes, root, limit=None, equal_length=True, skipped=Skipped(), accept=screen or (lambda replaced: True)
    )
    images = study.out / "probes" / f"{REPLACEMENT}-images"
    save_versions(made, root, images)
    return made, images


@probe_set(
    REPLACEMENT,
    "confirmation images with the word repainted as its near miss, as itself, and erased",
    f"sightline controls build text-replacement probes/confirmation.jsonl {TEXTOCR_IMAGES} --equal-length --limit 0 "
    "--out replaced",
    file="replaced/text_replacement.jsonl",
    images="--images replaced/images",
    reviewed=True,
)
def replacement(study: Study) -> Built:
    made, images = study.remembered("replaced words", lambda: _replaced(study))
    probes = [probe for one in made for probe in version_probes(one, Path(one.positive.image).suffix)]
    return Built(probes, {"control": "text_replacement", **_review(study)}, images)


@probe_set(
    EDIT_REGION,
    "the repainted near miss, with the one substituted character as its region",
    f"sightline controls build text-replacement probes/confirmation.jsonl {TEXTOCR_IMAGES} --equal-length --limit 0 "
    "--out replaced",
    file="replaced/edit_region.jsonl",
    images="--images replaced/images",
    reviewed=True,
)
def edit_region(study: Study) -> Built:
    made, images = study.remembered("replaced words", lambda: _replaced(study))
    probes = [probe for one in made if (probe := edit_region_probe(one)) is not None]
    return Built(probes, {"control": "edit_region", **_review(study)}, images)


def _review(study: Study) -> dict[str, bool]:
    """Whether people have looked at what was painted."""
    return {"reviewed": study.options.decisions is not None}


def _gsr_files(study: Study) -> tuple[Path, Path]:
    """(questions, COCO's instances) of GSR-Bench in the folder that was given."""
    folder = study.open_data.get(GSR)
    if folder is None:
        raise SightlineError("GSR-Bench was not given: name its folder with --gsr")
    found = [sorted(folder.glob(pattern)) for pattern in ("coco_qa_two_obj.json", "instances_*.json")]
    if not all(found):
        raise SightlineError(f"{folder} has not both coco_qa_two_obj.json and COCO's instances_*.json")
    return found[0][0], found[1][0]


def _lacks_gsr(study: Study) -> str:
    try:
        _gsr_files(study)
    except SightlineError as error:
        return str(error)
    return ""


def _relations(study: Study, rows: int) -> Built:
    from sightline.probes.annotations import read_annotations

    questions, instances = _gsr_files(study)
    ingest = read_annotations([questions], {"instances": str(instances), "rows": str(rows)}, file_format=GSR)
    if ingest.images is None:
        raise NothingToAskError(f"{questions} was found, but not its images, COCO's val2017")
    return Built(ingest.probes, {"name": GSR, "rows": rows}, ingest.images, ingest.source)


@probe_set(
    GSR,
    "GSR-Bench, COCO's two-object questions: 880 about 440 images",
    "sightline probes build gsr/coco_qa_two_obj.json --format-option instances=gsr/instances_val2017.json "
    "--out probes/gsr.jsonl",
    images="--images gsr/val2017",
    lacks=_lacks_gsr,
)
def relations(study: Study) -> Built:
    return _relations(study, study.limit or 0)


@probe_set(
    GSR_SLICE,
    "GSR-Bench, its first 50 images: 100 questions",
    "sightline probes build gsr/coco_qa_two_obj.json --format-option instances=gsr/instances_val2017.json "
    "--format-option rows=50 --out probes/gsr-slice.jsonl",
    images="--images gsr/val2017",
    lacks=_lacks_gsr,
)
def relations_slice(study: Study) -> Built:
    return _relations(study, min(50, study.limit or 50))
