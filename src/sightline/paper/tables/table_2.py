"""Table 2: do answers depend on the image, what coverage hides, and what pruning saves."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.controls.image_free import SEEDS, mismatch_view
from sightline.core.probe import ORIGINAL
from sightline.core.table import TableColumn, format_value
from sightline.cost.published import EFFICIENCY
from sightline.errors import SightlineError
from sightline.paper.cost_cards import batch_prefill, card_of, line_of, repeated_timing
from sightline.paper.cut import AT_ZERO, SHARED, judged
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Claim,
    Judgement,
    Line,
    Measured,
    PaperTable,
    interval_words,
    judgement,
    paired_rows,
    usual_needs,
)
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.paper.tables.shared import COUNT
from sightline.paper.tables.table_s17 import CARD, time_it
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.summaries import arm_points

if TYPE_CHECKING:
    from sightline.paper.study import Study

ANSWERS = ("accuracy", "hfpr", "auroc")
HEADS = ("Acc.", "hFPR", "AUROC")
GEOMETRY = ("pos_ecr", "lpp", "geo_f1")


def _images(model: str, *published: float | str) -> Line:
    probes = "development-image-free" if model == INTERNVL else "confirmation-image-free"
    cut = SHARED if model == INTERNVL else AT_ZERO
    return Line((MODELS[model].title, "Matched / blank / mismatch"), published, model, probes, "full", cut=cut)


IMAGE_LINES = (
    _images(QWEN, 1000, "0.783 / 0.502 / 0.503", "0.248 / 0.002 / 0.012", "0.856 / 0.574 / 0.399"),
    _images(LLAVA, 1000, "0.625 / 0.503 / 0.556", "0.316 / 0.002 / 0.234", "0.666 / 0.693 / 0.568"),
    _images(INTERNVL, 536, "0.646 / 0.618 / 0.525", "0.306 / 0.582 / 0.102", "0.687 / 0.676 / 0.524"),
)


def three_images(study: Study, line: Line) -> list[Measured]:
    """Full on the matching image, on gray, and the mean over the wrong images of three seeds."""
    rows = judged(study, line.model, line.probes, line.cut)
    views = {str(view): part for view, part in rows[rows["plain_arm"] == "full"].groupby("view")}
    wrong = [mismatch_view(seed) for seed in SEEDS]
    missing = [view for view in (ORIGINAL, "blank", *wrong) if view not in views]
    if missing:
        raise SightlineError(f"no rows about the view '{missing[0]}'")
    points = {view: arm_points(part, ANSWERS) for view, part in views.items()}
    found = [Measured(float(len(views[ORIGINAL])))]
    for name in ANSWERS:
        mean = sum(points[view][name] for view in wrong) / len(wrong)
        three = (points[ORIGINAL][name], points["blank"][name], mean)
        found.append(Measured(" / ".join(format_value(value, "score") for value in three)))
    return found


def _geometry(model: str, arm: str, words: str, *published: float) -> Line:
    return Line((words,), published, model, DEVELOPMENT, arm)


GEOMETRY_LINES = (
    _geometry(QWEN, "target:0.3", "Qwen Target (30%), development positives", 500, 0.651, 0.205, 0.295),
    _geometry(LLAVA, "target:0.4", "LLaVA Target (40%), development positives", 500, 0.458, 0.112, 0.171),
    _geometry(
        INTERNVL, "soft_evidence:0.5", "InternVL Soft evidence (50%), development positives", 500, 0.916, 0.166, 0.255
    ),
)


def all_positives(study: Study, line: Line) -> list[Measured]:
    """Geometry knows no threshold: all development positives count, InternVL's too."""
    rows = plain_rows(study.rows(line.model, line.probes))
    rows = rows[rows["label"] == "yes"]
    found = study.summary(rows, study.arm(line.model, line.arm), GEOMETRY, ("positives", line.model, line.probes))
    means = [Measured(found[name], found[f"{name}_low"], found[f"{name}_high"]) for name in GEOMETRY]
    return [Measured(float(found["n_probes"])), *means]


def _needs_its_image(line: Line) -> Claim:
    """Full on its own images against each draw of wrong ones; all of them must differ, so the weakest decides."""

    def decide(study: Study) -> Judgement:
        rows = judged(study, line.model, line.probes, line.cut)
        rows = rows[rows["plain_arm"] == "full"]
        rows = rows.assign(arm=rows["view"].astype(str), plain_arm=rows["view"].astype(str))
        found = []
        for seed in SEEDS:
            both = rows[rows["arm"].isin((ORIGINAL, mismatch_view(seed)))]
            if both["arm"].nunique() < 2:
                raise SightlineError(f"no rows about the view '{mismatch_view(seed)}'")
            change = paired_rows(study, both, ORIGINAL, "accuracy")
            found.append(judgement(change, interval_words(change), "below"))
        weakest = max(found, key=lambda each: (each.outcome != "holds", each.p))
        words = f"accuracy on wrong images minus its own, seeds {', '.join(map(str, SEEDS))}: "
        return replace(weakest, words=words + "; ".join(each.words for each in found))

    sentence = f"{MODELS[line.model].short} answers worse about a wrong image, whichever of three draws it is."
    return Claim(sentence, decide, tuple(usual_needs(line)))


SINGLE = {QWEN: "single-qwen", LLAVA: CARD, INTERNVL: "single-internvl"}
"""Cards of single passes; LLaVA's is that of Table S17."""
SHAPES = {QWEN: "qwen3-vl-8b", LLAVA: "llava-1.5-7b", INTERNVL: "internvl3.5-8b"}


def _cost(model: str, arm: str, words: str, keep: float) -> Line:
    selector, _, budget = arm.partition(":")
    found = EFFICIENCY[SHAPES[model], (selector, float(budget))]
    saved = format_value(-found.memory_saved, "percent")
    return Line((words,), (keep, found.single, found.prefill, saved), model, arm=arm)


COST_LINES = (
    _cost(QWEN, "target:0.2", "Qwen Target (20%)", 0.200),
    _cost(QWEN, "target:0.3", "Qwen Target (30%)", 0.301),
    _cost(LLAVA, "protected:0.4", "LLaVA Protected (40%)", 0.401),
    _cost(INTERNVL, "target:0.5", "InternVL Target (50%)", 0.500),
    _cost(INTERNVL, "soft_evidence:0.5", "InternVL Soft evidence (50%)", 0.500),
)


def measure_cost(study: Study) -> None:
    """Single passes and batches of every model that was given, each against its own Full."""
    for model in (QWEN, LLAVA, INTERNVL):
        arms = ("full", *(line.arm for line in COST_LINES if line.model == model))
        if model in study.models:
            batch_prefill(study, f"prefill-{model}", model, arms)
            if model == LLAVA:
                time_it(study)
            else:
                repeated_timing(study, SINGLE[model], model, arms)


def speed_and_memory(study: Study, line: Line) -> list[Measured]:
    study.require(line.model)
    single = line_of(card_of(study, SINGLE[line.model]), line.arm)
    batched = line_of(card_of(study, f"prefill-{line.model}"), line.arm)
    saved = batched.get("memory_saved")
    memory = "no GPU" if saved is None else format_value(-float(saved), "percent")
    return [Measured(single["keep"]), Measured(single["speedup"]), Measured(batched["speedup"]), Measured(memory)]


@PAPER_TABLES.register("2")
class ValidityAndCost(PaperTable):
    number = "2"
    title = "Image dependence, geometry and measured cost"
    about = (
        "Images: Full at Table 1's thresholds, wrong images as the mean of three seeds. Geometry: all development "
        "positives. Cost: measured here, single-sample scoring and batch prefill against Full, on whatever device the "
        "study runs on, with the images and precision of Table 1's rows; the published values are from one A800."
    )
    blocks = (
        Block(
            ("Model", "Image input"),
            (COUNT, *(TableColumn(name, title, "words") for name, title in zip(ANSWERS, HEADS, strict=True))),
            IMAGE_LINES,
            three_images,
            title="Answers and the image",
        ),
        Block(
            ("Policy and split",),
            (
                COUNT,
                *(
                    TableColumn(name, title, "score", interval=True)
                    for name, title in zip(GEOMETRY, ("ECR", "LPP", "Geo-F1"), strict=True)
                ),
            ),
            GEOMETRY_LINES,
            all_positives,
            title="Positive-region geometry on matched images",
        ),
        Block(
            ("Setting",),
            (
                TableColumn("keep", "Keep", "score"),
                TableColumn("single", "Single", "ratio"),
                TableColumn("prefill", "Prefill", "ratio"),
                TableColumn("memory", "Memory", "words"),
            ),
            COST_LINES,
            speed_and_memory,
            lambda line: [],
            title="Measured cost of shortened prefixes",
            requires="a GPU for times that mean something",
            prepare=measure_cost,
        ),
    )
    claims = tuple(_needs_its_image(line) for line in IMAGE_LINES)
