"""The yes/no probe sets that tables ask for: hard pairs on TextOCR, their controls, and GSR-Bench's relations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from sightline.controls.text_replacement import Replaced, edit_region_probe, version_probes
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes import HardPairRules, build_hard_pairs
from sightline_paper.study import Built, NothingToAskError, Study, builds, built_probes, built_set

DEVELOPMENT, CONFIRMATION = "development", "confirmation"
REPLACEMENT, EDIT_REGION = "replacement", "edit-region"
GSR, GSR_SLICE = "gsr", "gsr-slice"
PAPER_RULES: dict[str, dict[str, Any]] = {
    DEVELOPMENT: {"version": "development-v1", "seed": 17},
    CONFIRMATION: {"version": "confirmation-v2", "seed": 20_260_720, "shuffle_images": True},
}
IMAGES = 500


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


@builds(DEVELOPMENT)
def development(study: Study, name: str) -> Built:
    return _hard_pairs(study, PAPER_RULES[DEVELOPMENT])


@builds(CONFIRMATION)
def confirmation(study: Study, name: str) -> Built:
    _, seen = built_probes(study, DEVELOPMENT)
    return _hard_pairs(study, PAPER_RULES[CONFIRMATION], seen.image_ids)


FIRST = {"development-first-100": 100, "development-first-50": 50}


@builds(*FIRST)
def first(study: Study, name: str) -> Built:
    _, found, root = built_set(study, DEVELOPMENT)
    ids = set(found.image_ids[: FIRST[name]])
    return Built([probe for probe in found.probes if probe.image_id in ids], {"first_images": FIRST[name]}, root)


@builds("confirmation-image-free", "development-image-free")
def image_free(study: Study, name: str) -> Built:
    from sightline.controls.image_free import SEEDS, image_free_probes

    of = name.removesuffix("-image-free")
    _, found, root = built_set(study, of)
    control, _ = image_free_probes(found.probes, study.source.ingest.records)
    return Built(control, {"control": "image_free", "of": of, "seeds": list(SEEDS)}, root)


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
    made = replacements(probes, root, limit=None, equal_length=True, accept=screen or (lambda replaced: True))
    images = study.out / "probes" / f"{REPLACEMENT}-images"
    save_versions(made, root, images)
    return made, images


@builds(REPLACEMENT)
def replacement(study: Study, name: str) -> Built:
    made, images = study.remembered("replaced words", lambda: _replaced(study))
    probes = [probe for one in made for probe in version_probes(one, Path(one.positive.image).suffix)]
    return Built(probes, {"control": "text_replacement", **_review(study)}, images)


@builds(EDIT_REGION)
def edit_region(study: Study, name: str) -> Built:
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


def _lacks_gsr(study: Study, name: str) -> str:
    try:
        _gsr_files(study)
    except SightlineError as error:
        return str(error)
    return ""


@builds(GSR, GSR_SLICE, lacks=_lacks_gsr)
def relations(study: Study, name: str) -> Built:
    from sightline.probes.annotations import read_annotations

    rows = study.limit or 0 if name == GSR else min(50, study.limit or 50)
    questions, instances = _gsr_files(study)
    ingest = read_annotations([questions], {"instances": str(instances), "rows": str(rows)}, file_format=GSR)
    if ingest.images is None:
        raise NothingToAskError(f"{questions} was found, but not its images, COCO's val2017")
    return Built(ingest.probes, {"name": GSR, "rows": rows}, ingest.images, ingest.source)
