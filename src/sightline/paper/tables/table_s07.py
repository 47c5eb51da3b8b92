"""Table S7: the confirmation results on the image pairs that people found valid."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from sightline.errors import SightlineError
from sightline.paper.models import LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import (
    NOTHING,
    PAPER_TABLES,
    Block,
    Claim,
    Judgement,
    Line,
    Measured,
    PaperTable,
    metric_heads,
)
from sightline.paper.probe_sets import CONFIRMATION
from sightline.paper.tables.shared import RANDOM_30, RANDOM_40, cells
from sightline.probes.typed_rows import is_decision_file, read_decision_file
from sightline.report.sections.limited_probes import largest_changes

if TYPE_CHECKING:
    from sightline.paper.study import Study

PEOPLE = "people's decisions (--valid)"
METRICS = ("accuracy", "hfpr", "auroc", "pos_ecr", "anchor_ecr", "neg_src")


def _line(model: str, arm: str, method: str, *published: float) -> Line:
    return Line((MODELS[model].short, method), published, model, CONFIRMATION, arm)


LINES = (
    _line(QWEN, "full", "Full", 0.801, 0.249, 0.877, 1.000, 1.000, 1.000),
    _line(QWEN, "target:0.3", "Target (30%)", 0.798, 0.245, 0.875, 0.634, 0.634, 0.514),
    _line(QWEN, RANDOM_30, "Random (30%)", 0.752, 0.161, 0.792, 0.270, 0.270, 0.298),
    _line(QWEN, "grid:0.3", "Grid (30%)", 0.735, 0.144, 0.765, 0.321, 0.321, 0.321),
    _line(QWEN, "visionzip_qwen:0.3", "VisionZip (30%)", 0.763, 0.202, 0.807, 1.000, 0.851, 1.000),
    _line(LLAVA, "full", "Full", 0.631, 0.320, 0.675, 1.000, 1.000, 1.000),
    _line(LLAVA, "protected:0.4", "Protected (40%)", 0.651, 0.353, 0.704, 1.000, 1.000, 1.000),
    _line(LLAVA, RANDOM_40, "Random (40%)", 0.674, 0.260, 0.719, 0.375, 0.375, 0.388),
    _line(LLAVA, "target:0.4", "Target (40%)", 0.625, 0.583, 0.720, 0.479, 0.479, 0.448),
    _line(LLAVA, "scope:0.4", "SCOPE (40%)", 0.590, 0.561, 0.652, 0.613, 0.613, 0.613),
    _line(LLAVA, "anchorprune:0.4", "AnchorPrune (40%)", 0.584, 0.583, 0.650, 0.636, 0.636, 0.641),
    _line(LLAVA, "coin:0.4", "CoIn (40%)", 0.584, 0.669, 0.672, 0.672, 0.672, 0.688),
    _line(LLAVA, "visionzip:0.4", "VisionZip (40%)", 0.586, 0.669, 0.672, 1.000, 0.562, 1.000),
)


def valid_images(study: Study, probes: str = CONFIRMATION) -> frozenset[str]:
    """Ids of images that people found valid; a demonstration leaves out about one in ten by a hash instead."""
    path = study.options.valid
    if path is not None and is_decision_file(path):
        return read_decision_file(path).valid_images
    if path is not None:
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise SightlineError(f"cannot read {path}: {error.strerror}") from None
        return frozenset(line.strip() for line in lines if line.strip())
    if not study.options.demo:
        raise SightlineError(
            "which images people found valid is not known: give --valid FILE, what 'sightline annotate sign-off' wrote "
            "or one image id per line (the paper's own list of 465 was not published)"
        )
    images = study.rows(QWEN, probes)["image_id"].astype(str).unique()
    return frozenset(name for name in images if int(hashlib.sha1(name.encode()).hexdigest()[:8], 16) % 10)


def valid_rows(study: Study, line: Line) -> tuple[pd.DataFrame, frozenset[str]]:
    """The rows of valid images, and which those are."""
    valid = valid_images(study)
    rows = study.rows(line.model, line.probes)
    rows = rows[rows["image_id"].astype(str).isin(valid)]
    if rows.empty:
        raise SightlineError("none of the images that people found valid is in the confirmation set")
    return rows, valid


def on_valid_images(study: Study, line: Line) -> list[Measured]:
    rows, valid = valid_rows(study, line)
    key = ("valid", line.model, line.probes, valid)
    return cells(study.summary(rows, study.arm(line.model, line.arm), METRICS, key), METRICS)


CHANGES = (
    Line((MODELS[QWEN].short,), (0.018, 0.005, 0.022, 0.014, 0.014, 0.007), QWEN, CONFIRMATION),
    Line((MODELS[LLAVA].short,), (0.008, 0.009, 0.011, 0.008, 0.008, 0.007), LLAVA, CONFIRMATION),
)
"""The largest change of each metric over the methods of a model, as its artifact's table of differences has it."""


def methods_of(line: Line) -> list[Need]:
    """The rows of all methods of a line's model."""
    arms = tuple(each.arm for each in LINES if each.model == line.model)
    return [Need(line.model, line.probes, arms)]


def largest_of_methods(study: Study, line: Line) -> list[Measured]:
    """Valid images against all of them: for every metric the method that changes most."""
    kept, _ = valid_rows(study, line)
    arms = [study.arm(line.model, each.arm) for each in LINES if each.model == line.model]
    every = study.rows(line.model, line.probes)
    every, kept = (rows[rows["arm"].isin(arms)] for rows in (every, kept))
    found = largest_changes(every, kept, METRICS)
    changes = dict(zip(found["metric"], found["change"], strict=True))
    return [Measured(float(changes[name])) if name in changes else NOTHING for name in METRICS]


MOST = 0.009
"""How far leaving out invalid images moved any hFPR, as published."""


def _filtering_changes_little(study: Study) -> Judgement:
    place = METRICS.index("hfpr")
    found = {line.words[0]: largest_of_methods(study, line)[place].value for line in CHANGES}
    words = ", ".join(f"{model} {change:+.3f}" for model, change in found.items())
    return Judgement("holds" if all(abs(float(change or 0)) <= MOST for change in found.values()) else "fails", words)


@PAPER_TABLES.register("S7")
class ValidPairs(PaperTable):
    number = "S7"
    title = "Confirmation results on the pairs that people found valid"
    about = (
        "Table 1's confirmation rows without the images that a person rejected (unreadable source, or the decoy is "
        "there). In a demonstration no person has looked: one image in ten is left out by a hash."
    )
    blocks = (
        Block(
            ("Model", "Method"),
            metric_heads(*METRICS),
            LINES,
            on_valid_images,
            requires=PEOPLE,
        ),
        Block(
            ("Model",),
            tuple(replace(head, kind="signed", interval=False) for head in metric_heads(*METRICS)),
            CHANGES,
            largest_of_methods,
            needs=methods_of,
            title="Largest change of each metric, valid images against all",
            requires=PEOPLE,
        ),
    )
    claims = (
        Claim(
            f"Leaving out what people rejected changes no method's hFPR by more than {MOST}.",
            _filtering_changes_little,
            tuple(need for line in CHANGES for need in methods_of(line)),
        ),
    )
