"""``resize``: the image shown smaller instead of pruned, audited like every other arm."""

import io
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from sightline import Probe, audit, load_backbone
from sightline.answering.answerer import Answerer, ask
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms import parse_arm
from sightline.backbones.base import model_logits
from sightline.checks.doctor import drawn_image
from sightline.report.build import build_report
from sightline.rows.images import probe_scales
from sightline.store.shard_files import unpack_cells, unpack_mask
from tests.refusals import Refused

WHOLE = ["resize:1.0", "resize:9999t"]
ARMS = ["full", "resize:0.3", "target:0.3", "resize:0.5", "resize:20t", "random:0.3", *WHOLE]
"""Pruned and smaller arms in turns; the mini set's images have other proportions each."""


def by_arm(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    return frame[frame["arm"] == arm].reset_index(drop=True)


def test_a_smaller_image_is_all_kept_and_measured_by_its_own_cells(config: Any, encoded: list[int]) -> None:
    run = audit(config("qwen3vl", arms=ARMS))
    assert sum(encoded) == 3 * 6, "three images, in their usual size and once for each of five arms"
    frame = run.frame()
    records = {record["image_key"]: record for record in run.images.to_pylist()}
    full = by_arm(frame, "full")
    for arm, requested in (("resize:0.3", 0.3), ("resize:0.5", 0.5), ("resize:20t", None)):
        rows = by_arm(frame, arm)
        budget = parse_arm(arm).budget
        assert (rows["role"] == "control").all()
        assert (rows["view"] == "orig").all()
        assert (rows["intervention"] == "none").all()
        assert rows["keep_requested"].isna().all() if requested is None else (rows["keep_requested"] == requested).all()
        assert (rows["budget"] == str(budget)).all()
        assert (rows["n_tokens"] == full["n_tokens"]).all(), "N is that of the image in its usual size"
        assert (rows["k_tokens"] <= [budget.resolve(n) for n in rows["n_tokens"]]).all()
        assert (rows["keep"] == rows["k_tokens"] / rows["n_tokens"]).all()
        assert (rows["sequence_full"] == full["sequence_full"]).all()
        assert (rows["sequence_full"] - rows["sequence_pruned"] == rows["n_tokens"] - rows["k_tokens"]).all()
        assert rows["ecr"].to_numpy() == pytest.approx(1.0)
        row: Any
        for row in rows.itertuples():
            record = records[row.image_key]
            cells = unpack_cells(record["cells"])
            ((high, wide),) = json.loads(record["layout"])
            assert high * wide == len(cells) == row.k_tokens
            assert unpack_mask(row.kept_mask, len(cells)).all()
            assert abs(high / wide - record["height"] / record["width"]) <= 0.35, "the image's proportions"
        smaller = Image.open(io.BytesIO(records[rows["image_key"][0]]["preview"]))
        whole = Image.open(io.BytesIO(records[full["image_key"][0]]["preview"]))
        assert max(smaller.size) < max(whole.size), "a preview shows no more than the model saw"
        assert smaller.width / smaller.height == pytest.approx(whole.width / whole.height, rel=0.05)
    assert len(records) == 3 * 6


def test_all_of_the_budget_is_full_itself_to_the_last_bit(config: Any) -> None:
    frame = audit(config("qwen3vl", arms=["full", *WHOLE])).frame()
    full = by_arm(frame, "full")
    for arm in WHOLE:
        same = by_arm(frame, arm)
        for column in ("loss_yes", "loss_no", "n_tokens", "k_tokens", "keep", "ecr", "kept_mask", "sequence_pruned"):
            assert (same[column] == full[column]).all(), column


def test_the_audited_path_is_the_models_own_at_fewer_pixels(data: Path) -> None:
    """What transformers makes of the image when its processor is asked for as few pixels."""
    backbone = load_backbone(str(data / "tiny" / "qwen3vl"), dtype="float32", device="cpu")
    arm, image = parse_arm("resize:0.3"), drawn_image()
    pixels = backbone.preprocess(image, budget=arm.image_budget)
    (encoded,) = backbone.encode([pixels])
    probe = Probe("p", "x.png", "x", "Is the word INVOICE there?", "yes", "INVOICE", "INVOICE", ())
    prefix = Answerer(backbone, YesNo(), positions="preserve").over(arm, [probe], [encoded]).prefix(0)
    prompt = YesNo().prompt(backbone, probe)
    ids = (*prompt.head, *prompt.shared)
    theirs = model_logits(backbone.under(pixels.options), image, ids, len(prompt.head))
    ours = backbone.language.prefix_logits(prefix)[: len(theirs)]
    assert encoded.n < encoded.full_n
    assert (ours - theirs).abs().max() <= 1e-4


def test_occlusion_and_blank_change_the_image_before_it_is_made_smaller(config: Any) -> None:
    run = audit(config("qwen3vl", arms=["resize:0.3"], interventions=["occlusion", "blank", "deletion", "positions"]))
    frame = run.frame()
    shown = [
        f"{arm}{change}"
        for change in ("", "+occlude_evidence", "+occlude_random", "+blank")
        for arm in ("full", "resize:0.3")
    ]
    assert set(frame["arm"]) == set(shown), "no mask to delete from, no gaps between positions"
    plain = by_arm(frame, "resize:0.3")
    views = {"occlude_evidence": "evidence_masked", "occlude_random": "random_masked", "blank": "blank"}
    for change, view in views.items():
        changed = by_arm(frame, f"resize:0.3+{change}")
        assert (changed["plain_arm"] == "resize:0.3").all()
        assert (changed["view"] == view).all()
        assert (changed["k_tokens"] == plain["k_tokens"]).all()
        assert (changed["margin"] != plain["margin"]).any()
    keys = set(run.images.column("image_key").to_pylist())
    assert set(frame["image_key"]) <= keys


def test_a_question_is_asked_about_the_smaller_image_unless_that_cannot_be_shown(
    config: Any, data: Path, tmp_path: Path, refused: Refused, request: pytest.FixtureRequest
) -> None:
    page, model, question = tmp_path / "page.png", str(data / "tiny" / "qwen3vl"), "What is it?"
    drawn_image().save(page)
    reply, full = (ask(model, page, question, arm, max_new_tokens=2) for arm in ("resize:0.3", "full"))
    assert reply.full == full.full == full.kept
    assert 0.2 * reply.full < reply.kept <= 0.3 * reply.full + 1

    backbone = load_backbone(model, dtype="float32", device="cpu")
    encoded = backbone.encode([backbone.preprocess(drawn_image())])
    probe = Probe("p", "x.png", "x", "Is it there?", "yes", "it", "it", ())
    usual = Answerer(backbone, YesNo())
    refused("resize:0.3 reads smaller images", usual.answer, parse_arm("resize:0.3"), [probe], encoded)
    small = config("internvl", arms=["full", "resize:3t"])
    refused("arm 'resize:3t', image train/", audit, small)
    refused("resize cannot run on Llava", ask, str(data / "tiny" / "llava"), page, question, "resize:0.3")
    request.getfixturevalue("no_weights")
    for arm in ("resize:0.3", "resize:0.3+blank"):
        refused("resize cannot run on Llava", audit, config("llava", arms=["full", arm]))
    assert not small.out.exists()


def test_a_report_shows_it_beside_the_others(config: Any, tmp_path: Path) -> None:
    """With the smaller images first: no table takes their cells for those of the full prefix."""
    run = audit(config("qwen3vl", arms=["resize:0.3", "full", "target:0.3"], interventions=["occlusion"]))
    tokens = run.frame().query("arm == 'full'").set_index("probe_id")["n_tokens"]
    scales = probe_scales(run)["median_cell_area"]
    assert len(scales) == len(run.probes)
    for probe, area in scales.items():
        assert area == pytest.approx(1 / tokens[str(probe)], rel=0.01)
    page = build_report([run.path], tmp_path / "report", cases=4, draws=50).read_text(encoding="utf-8")
    assert "resize:0.3" in page
