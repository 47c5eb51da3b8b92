"""How tables about answers to yes or no, masks and time are measured where metrics alone do not say it.

The file of a table names these functions: a ``measure`` returns the cells of a line, a ``decide`` what becomes of a
claim, a ``prepare`` makes what a block needs beyond rows. What a line is about beside its arm is in ``line.about``.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pandas as pd

from sightline.analysis.comparison import compare_support, indexed
from sightline.analysis.outcomes import lexically_plausible, samples, tertiles
from sightline.controls.image_free import SEEDS, mismatch_view
from sightline.core.probe import ORIGINAL
from sightline.core.table import format_range, format_value
from sightline.errors import SightlineError
from sightline.places.listing import file_errors
from sightline.probes import audit_negatives
from sightline.probes.lexical_audit import LexicalAudit
from sightline.probes.typed_rows import is_decision_file, read_decision_file
from sightline.report.sections.contract import largest_changes
from sightline.report.sections.image_dependence import image_dependence_frame
from sightline.report.sections.positions import positions_frame
from sightline.report.sections.replaced_text import (
    edit_region_frame,
    text_replacement_frame,
    text_replacement_models_frame,
    word_coverage,
)
from sightline.report.sections.validity import association_frame, correlations
from sightline.rows.images import probe_scales
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.correct_positives import CorrectPositives, correct_positive_provenance
from sightline.statistics.metrics import METRICS, point
from sightline.statistics.paired import seed_summary, two_stage_difference
from sightline.statistics.summaries import arm_points, arm_rows
from sightline_paper.claims import ALPHA, Judgement, interval_words, judgement
from sightline_paper.lines import (
    NOTHING,
    Line,
    Measured,
    cell,
    cells,
    ends,
    own_rows,
    paired,
    paired_rows,
    rows_of,
    summary_of,
)
from sightline_paper.models import QWEN
from sightline_paper.probe_sets import CONFIRMATION, DEVELOPMENT, EDIT_REGION
from sightline_paper.study import Study, built_probes

# Answers and the image: Table 2, PLAUSIBLE.

ANSWERS = ("accuracy", "hfpr", "auroc")


def three_images(study: Study, line: Line) -> list[Measured]:
    """Full on the matching image, on gray, and the mean over the wrong images of three seeds."""
    rows = rows_of(study, line)
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


def needs_its_image(study: Study, line: Line) -> Judgement:
    """Full on its own images against each draw of wrong ones; all of them must differ, so the weakest decides."""
    rows = rows_of(study, line)
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


def plausible_decoys(study: Study, line: Line) -> list[Measured]:
    """Accuracy on matching and on wrong images where the decoy is a word of some other image."""
    rows = rows_of(study, line)
    images = lexically_plausible(study.run(line.model, line.probes).probes)
    if not images & set(rows["image_id"].astype(str)):
        raise SightlineError("no decoy is a word of another image")
    found = image_dependence_frame(rows[rows["plain_arm"] == "full"], images=images, draws=study.options.draws)
    own: Any = found.set_index("condition")
    matched, wrong = (float(own.loc[name, "accuracy"]) for name in ("matching image", "wrong images"))
    return [Measured(float(own.loc["matching image", "n"])), Measured(matched), Measured(wrong)]


# Metrics over positives, settings, seeds and pairs of arms: 2, S2, S3, S4, S12.


def all_positives(study: Study, line: Line) -> list[Measured]:
    """Geometry knows no threshold: all development positives count, InternVL's too."""
    rows = plain_rows(study.rows(line.model, line.probes))
    rows = rows[rows["label"] == "yes"]
    names = ("pos_ecr", "lpp", "geo_f1")
    found = study.summary(rows, study.arm(line.model, line.arm), names, ("positives", line.model, line.probes))
    return [Measured(float(found["n_probes"])), *cells(found, names)]


def ranges(study: Study, line: Line) -> list[Measured]:
    """Lowest and highest of each metric over the settings of a sweep, ``arms``."""
    names = ("accuracy", "hfpr", "auroc", "pn_average")
    found = [summary_of(study, replace(line, arm=arm), names) for arm in line.about["arms"]]
    spans = [(min(one[name] for one in found), max(one[name] for one in found)) for name in names]
    return [Measured(format_range(low, high, "score")) for low, high in spans]


CONTROLLED = ("accuracy", "hfpr", "keep", "pn_average")


def with_change(study: Study, line: Line) -> list[Measured]:
    """Metrics, and the P/N average minus that of ``minus``, paired."""
    found = summary_of(study, line, CONTROLLED)
    minus = line.about["minus"]
    change = paired(study, line, minus, "pn_average") if minus else NOTHING
    return [Measured(float(found["n_probes"])), *cells(found, CONTROLLED), change]


def with_recovery(study: Study, line: Line) -> list[Measured]:
    """recovery = (accuracy - removed) / (selected - removed), where evidence was restored."""
    found = summary_of(study, line, CONTROLLED)
    recovery = NOTHING
    if "+restore" in line.arm:
        plain = line.arm.partition("+")[0]
        arms = (replace(line, arm=arm) for arm in (plain, f"{plain}+remove_evidence"))
        selected, removed = (summary_of(study, each, CONTROLLED)["accuracy"] for each in arms)
        lost = selected - removed
        recovery = Measured((found["accuracy"] - removed) / lost if lost else "nothing was lost")
    return [Measured(float(found["n_probes"])), *cells(found, CONTROLLED), recovery]


def differences(study: Study, line: Line) -> list[Measured]:
    """The arm minus ``minus`` in accuracy and hFPR, images resampled."""
    accuracy, hfpr = (paired(study, line, line.about["minus"], metric) for metric in ("accuracy", "hfpr"))
    found = [Measured(float(rows_of(study, line)["image_id"].nunique()))]
    for one in (accuracy, hfpr):
        found += [Measured(one.value), Measured(ends(one.low, one.high, 3))]
    return found


TWO_STAGE_DRAWS = 20_000


def over_seeds(study: Study, line: Line) -> list[Measured]:
    """Mean, population deviation and range of ``metric`` over ``seeded`` arms; the arm minus their mean.

    Seeds and images are resampled.
    """
    rows = study.rows(line.model, line.probes)
    metric = METRICS[line.about["metric"]]
    seeded = [arm_rows(own_rows(study, rows, line.model, arm)) for arm in line.about["seeded"]]
    found = seed_summary([point(metric, one) for one in seeded])
    own = arm_rows(own_rows(study, rows, line.model, line.arm))
    gain = two_stage_difference(own, seeded, metric, draws=TWO_STAGE_DRAWS)
    span = format_range(found.minimum, found.maximum, "score")
    values = (found.mean, found.sd, span, gain.value, ends(gain.low, gain.high, 3))
    return [Measured(value) for value in values]


# Right answers and their evidence: S5.


def _correct_positives(study: Study, model: str, arm: str) -> CorrectPositives:
    rows = study.rows(model, CONFIRMATION)
    return correct_positive_provenance(arm_rows(own_rows(study, rows, model, arm)), draws=study.options.draws)


def provenance(study: Study, line: Line) -> list[Measured]:
    """Positives answered yes, their mean coverage, and the shares with little and with no evidence left (Wilson)."""
    found = _correct_positives(study, line.model, line.arm)
    shares = (Measured(share.rate, *share.wilson) for share in (found.weakly_supported, found.unsupported))
    return [Measured(float(found.correct)), Measured(found.mean_ecr), Measured(found.mean_anchor_ecr), *shares]


def less_unsupported(study: Study, line: Line) -> Judgement:
    arms = (line.arm, line.about["minus"])
    target, random = (_correct_positives(study, line.model, arm).unsupported for arm in arms)
    words = f"Target {target.rate:.1%}, Random {random.rate:.1%} of right yes answers are unsupported"
    if target.wilson[1] < random.wilson[0]:
        return Judgement("holds", words)
    return Judgement("fails" if target.wilson[0] > random.wilson[1] else "open", words)


def merging_hides(study: Study, line: Line) -> Judgement:
    found = _correct_positives(study, line.model, line.arm)
    words = f"lineage {found.mean_ecr:.3f}, anchors {found.mean_anchor_ecr:.3f}"
    return Judgement("holds" if found.mean_ecr > found.mean_anchor_ecr else "fails", words)


# How negatives were made: S6.


def _count(of: Callable[[Any], bool]) -> Callable[[LexicalAudit], str]:
    return lambda audit: f"{sum(map(of, audit.findings))}/{len(audit.findings)}"


def _mean(of: Callable[[Any], float]) -> Callable[[LexicalAudit], str]:
    return lambda audit: f"{sum(map(of, audit.findings)) / len(audit.findings):.3f}"


def _kinds_of_edit(audit: LexicalAudit) -> str:
    kinds = Counter(finding.edit for finding in audit.findings)
    substituted, deleted = kinds["single_substitution"], kinds["single_deletion"]
    return f"{substituted} / {deleted} / {len(audit.findings) - substituted - deleted}"


FIGURES: dict[str, Callable[[LexicalAudit], str]] = {
    "probes_and_images": lambda audit: (
        f"{len(audit.findings)} / {len({finding.probe.image_id for finding in audit.findings})}"
    ),
    "edit_distance": _mean(lambda finding: finding.distance),
    "relative_distance": _mean(lambda finding: finding.relative_distance),
    "words_of_their_image": _count(lambda finding: bool(finding.collisions)),
    "same_as_source": _count(lambda finding: bool(finding.same_as_source)),
    "far_edits": _count(lambda finding: finding.distance > 2),
    "words_of_others": _count(lambda finding: finding.other_images_casefold > 0),
    "letters_of_others": _count(lambda finding: finding.other_images_alnum > 0),
    "kinds_of_edit": _kinds_of_edit,
}
"""What S6 counts about the decoys of a set, by the ``figure`` of its lines."""
WORD_BY_WORD = frozenset(("raw_trim", "nfc", "nfkc", "nfkc_casefold", "nfkc_casefold_nospace"))
"""Normalisers that leave punctuation alone."""


def both_splits(study: Study, line: Line) -> list[Measured]:
    figure = FIGURES[line.about["figure"]]
    return [Measured(figure(_lexical_audit(study, name))) for name in (DEVELOPMENT, CONFIRMATION)]


def _lexical_audit(study: Study, name: str) -> LexicalAudit:
    def make() -> LexicalAudit:
        _, found = built_probes(study, name)
        return audit_negatives(found.probes, study.source.ingest.records)

    return study.remembered(("lexical audit", name), make)


def no_decoy_in_its_image(study: Study, line: Line) -> Judgement:
    counts = {
        name: sum(bool(WORD_BY_WORD & set(finding.collisions)) for finding in _lexical_audit(study, name).findings)
        for name in (DEVELOPMENT, CONFIRMATION)
    }
    words = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return Judgement("fails" if any(counts.values()) else "holds", words)


# Images that people found valid: S7, QC.

VALID_METRICS = ("accuracy", "hfpr", "auroc", "pos_ecr", "anchor_ecr", "neg_src")


def valid_images(study: Study, probes: str = CONFIRMATION) -> frozenset[str]:
    """Ids of images that people found valid; a demonstration leaves out about one in ten by a hash instead."""
    path = study.options.valid
    if path is not None and is_decision_file(path):
        return read_decision_file(path).valid_images
    if path is not None:
        with file_errors(f"cannot read {path}"):
            lines = path.read_text(encoding="utf-8").splitlines()
        return frozenset(line.strip() for line in lines if line.strip())
    if not study.options.demo:
        raise SightlineError(
            "which images people found valid is not known: give --valid FILE, what 'sightline annotate sign-off' wrote "
            "or one image id per line (the paper's own list of 465 was not published)"
        )
    images = study.rows(QWEN, probes)["image_id"].astype(str).unique()
    return frozenset(name for name in images if int(hashlib.sha1(name.encode()).hexdigest()[:8], 16) % 10)


def _valid_rows(study: Study, line: Line) -> tuple[pd.DataFrame, frozenset[str]]:
    """The rows of valid images, and which those are."""
    valid = valid_images(study, line.probes)
    rows = study.rows(line.model, line.probes)
    rows = rows[rows["image_id"].astype(str).isin(valid)]
    if rows.empty:
        raise SightlineError(f"none of the images that people found valid is in the {line.probes} set")
    return rows, valid


def on_valid_images(study: Study, line: Line) -> list[Measured]:
    rows, valid = _valid_rows(study, line)
    key = ("valid", line.model, line.probes, valid)
    return cells(study.summary(rows, study.arm(line.model, line.arm), VALID_METRICS, key), VALID_METRICS)


def _largest_changes(study: Study, line: Line, metrics: tuple[str, ...]) -> tuple[dict[str, float], pd.DataFrame]:
    """Valid images against all of them: for every metric the change of that arm of ``arms`` that changes most."""
    valid, _ = _valid_rows(study, line)
    arms = [study.arm(line.model, arm) for arm in line.about["arms"]]
    every, kept = (rows[rows["arm"].isin(arms)] for rows in (study.rows(line.model, line.probes), valid))
    found = largest_changes(every, kept, metrics)
    return dict(zip(found["metric"], found["change"].astype(float), strict=True)), kept


def largest_of_methods(study: Study, line: Line) -> list[Measured]:
    changes, _ = _largest_changes(study, line, VALID_METRICS)
    return [Measured(changes[name]) if name in changes else NOTHING for name in VALID_METRICS]


def filtering_changes_little(study: Study, line: Line) -> Judgement:
    """Whether no hFPR moved further than ``most``."""
    changes = ((each.words[0], _largest_changes(study, each, VALID_METRICS)[0]) for each in line.about["lines"])
    found = {model: change.get("hfpr", 0.0) for model, change in changes}
    words = ", ".join(f"{model} {change:+.3f}" for model, change in found.items())
    held = all(abs(change) <= line.about["most"] for change in found.values())
    return Judgement("holds" if held else "fails", words)


def development_valid(study: Study, line: Line) -> list[Measured]:
    """Images that people found valid, and the largest change of hFPR over methods when the others are left out."""
    changes, kept = _largest_changes(study, line, ("hfpr",))
    if kept.empty:
        raise SightlineError(f"none of {', '.join(line.about['arms'])} has been measured")
    return [Measured(float(kept["image_id"].nunique())), Measured(changes["hfpr"])]


# Coverage and what follows from it: S8, S9, S15, STRATA.

MASKS = ("target:0.3", "random:0.3:seed=17", "grid:0.3", "visionzip_qwen:0.3")


def association(study: Study, line: Line) -> list[Measured]:
    found = _conditional(study, **line.about)
    interval = f"[{found['estimate_low']:.3f}, {found['estimate_high']:.3f}]"
    return [Measured(float(found["images"])), Measured(float(found["estimate"])), Measured(interval)]


def _conditional(study: Study, scope: str, specification: str, predictor: str) -> Any:
    """One association of coverage with the margin that is left, over four masks of one budget."""

    def make() -> pd.DataFrame:
        run = study.run(QWEN, CONFIRMATION)
        arms = [study.arm(QWEN, arm) for arm in MASKS]
        rows = study.rows(QWEN, CONFIRMATION)
        return association_frame(rows, probe_scales(run), arms=arms, draws=study.options.draws)

    table = study.remembered("conditional audit", make)
    chosen = (table["scope"] == scope) & (table["specification"] == specification) & (table["predictor"] == predictor)
    if not chosen.any():
        raise SightlineError("too few images with all masks")
    return table[chosen].iloc[0]


def coverage_keeps_margin(study: Study, line: Line) -> Judgement:
    found = _conditional(study, "all", "image and arm effects", "ecr")
    rho = cell(found, "estimate")
    return judgement(rho, f"r = {interval_words(rho)}")


def validity(study: Study, line: Line) -> list[Measured]:
    """Means over positives, then Spearman and partial Spearman of ECR with the drops by graying and by deletion.

    Rows with their deletions (``deleted``), and Full on the images that were grayed (the set ``grayed``).
    """
    joined = study.remembered(("samples", line.model), lambda: _with_drops(study, line))
    own = own_rows(study, joined, line.model, line.arm)
    found = study.remembered(("correlations", line.model), lambda: correlations(own, draws=study.options.draws))
    means = [Measured(float(own[name].astype(float).mean())) for name in ("ecr", "lpp", "geo_f1")]
    grayed, deleted = (
        [_correlation(found, outcome, kind) for kind in ("spearman", "partial_spearman")]
        for outcome in ("occlusion_specific_drop", "deletion_drop")
    )
    occluded = Measured(float(own["occlusion_specific_drop"].notna().sum()))
    deleted = deleted if line.about["deleted"] else [NOTHING] * 2
    return [Measured(float(len(own))), *means, occluded, *grayed, *deleted]


def _with_drops(study: Study, line: Line) -> pd.DataFrame:
    rows = study.rows(line.model, line.probes)
    own = rows[(rows["plain_arm"] == study.arm(line.model, line.arm)) | (rows["arm"] == "full")]
    grayed = study.rows(line.model, line.about["grayed"])
    grayed = grayed[grayed["arm"].isin(("full+occlude_evidence", "full+occlude_random"))]
    return samples(pd.concat([own, grayed], ignore_index=True), probe_scales(study.run(line.model, line.probes)))


def _correlation(found: pd.DataFrame, outcome: str, kind: str) -> Measured:
    chosen = found[(found["outcome"] == outcome) & (found["predictor"] == "ecr") & (found["correlation"] == kind)]
    return Measured("too few") if chosen.empty else cell(chosen.iloc[0], "estimate")


def support_moved(study: Study, line: Line) -> list[Measured]:
    """Target support (+ margin on yes probes, - margin on no probes) of ``left`` minus that of ``right``, paired."""
    whole = line.probes != DEVELOPMENT  # InternVL's grayed images are not split
    rows = study.rows(line.model, line.probes) if whole else rows_of(study, line)
    arms = (line.about["left"], line.about["right"])
    left, right = (indexed(own_rows(study, rows, line.model, arm), arm) for arm in arms)
    found = compare_support(left, right, study.options.draws)
    parts = ("support_diff", "pos_support_diff", "neg_support_diff")
    return [*cells(found, parts), Measured(float(found["n"]))]


def largest_cells(study: Study, line: Line) -> list[Measured]:
    """Means over the positives whose median cell is in the largest third."""
    run = study.run(line.model, line.probes)
    rows = study.rows(line.model, line.probes)
    joined: pd.DataFrame = samples(rows[rows["arm"].isin((study.arm(line.model, line.arm), "full"))], probe_scales(run))
    own = joined[tertiles(joined["median_cell_area"]) == "large"]
    if own.empty:
        raise SightlineError("all cells are of one size here")
    return [Measured(float(len(own))), *(Measured(float(own[name].astype(float).mean())) for name in ("ecr", "lpp"))]


# Replaced words: S13, S14.


def four_controls(study: Study, line: Line) -> list[Measured]:
    """Images, and the shares of pairs that are answered right under each control and under all (Wilson)."""
    found: Any = text_replacement_frame(rows_of(study, line)).iloc[0]
    names = ("original", "replacement", "sham", "erase", "semantic_switch")
    shares = [Measured(float(found[name])) for name in names]
    return [Measured(float(found["images"])), *shares, cell(found, "all_controls")]


def told_apart(study: Study, line: Line) -> Judgement:
    """Exact McNemar test of passing all four controls, Qwen against InternVL on the same images."""
    parts = [rows_of(study, each).assign(model=each.model) for each in line.about["lines"]]
    found = text_replacement_models_frame(pd.concat(parts, ignore_index=True)).iloc[0]
    words = (
        f"all controls: Qwen alone {found['only_first']}, InternVL alone {found['only_second']} of "
        f"{found['images']} images, exact McNemar p = {found['mcnemar_p']:.2g}"
    )
    p = float(found["mcnemar_p"])
    if p >= ALPHA:
        return Judgement("open", words, p)
    return Judgement("holds" if found["only_first"] > found["only_second"] else "fails", words, p)


def _edit_regions(study: Study) -> pd.DataFrame:
    def make() -> pd.DataFrame:
        run = study.run(QWEN, EDIT_REGION)
        return edit_region_frame(run.frame(), word_coverage(run))

    return study.remembered("edit regions", make)


def localised(study: Study, line: Line) -> list[Measured]:
    """Coverage of the word and of its one substituted character under the same mask."""
    found: Any = own_rows(study, _edit_regions(study), line.model, line.arm).iloc[0]
    names = ("n", "accuracy", "word_ecr", "ecr", "edit_gone", "word_kept_edit_lost")
    return [Measured(float(found[name])) for name in names]


def edit_kept(study: Study, line: Line) -> Judgement:
    """Coverage of the substituted character, the arm minus ``minus``; ``published`` is what the paper says of it."""
    table, minus = _edit_regions(study), line.about["minus"]
    pair = (table["arm"] == study.arm(QWEN, line.arm)) & (table["against"] == study.arm(QWEN, minus))
    if not pair.any():
        raise SightlineError(f"{line.arm} and {minus} have not both been measured")
    found = table[pair].iloc[0]
    gain = cell(found, "ecr_gain")
    return judgement(gain, f"edit coverage {interval_words(gain)}, 20,000 draws; published {line.about['published']}")


# Positions and detectors: POSITIONS, S18.


def both_policies(study: Study, line: Line) -> list[Measured]:
    """Compact / preserved positions under one mask, and decisions that differ."""
    rows = study.rows(line.model, line.probes)
    found = positions_frame(rows[rows["plain_arm"] == study.arm(line.model, line.arm)])
    own = found[found["comparison"] == line.about["comparison"]]
    if own.empty:
        raise SightlineError("the hash split leaves one side without images; take more of them")
    record: Any = own.iloc[0]
    figures = ((record[f"{name}_{policy}"] for policy in ("compact", "preserve")) for name in ANSWERS)
    pairs = (" / ".join(format_value(value, "score") for value in pair) for pair in figures)
    return [Measured(float(record["n"])), *map(Measured, pairs), Measured(float(record["flips"]))]


def detector_itself(study: Study, line: Line) -> list[Measured]:
    """Mean time of an image, share of annotated boxes that no detection meets, mean best IoU."""
    run = study.run(line.model, line.probes, line.box_source)
    quality, rows = run.manifest.get("boxes") or {}, run.frame()
    took = float(rows["boxes_ms"].astype(float).mean()) if "boxes_ms" in rows else math.nan
    found = (Measured(float(quality.get(name, math.nan))) for name in ("missing_rate", "best_iou"))
    return [Measured(f"{took:.1f}"), *found]
