"""The shipped readers: ordinary checkpoints that answer shipped probes, also through stock classes."""

import json
import re

import pytest
import torch
from transformers import AutoModelForImageTextToText

from lab.reader.forms import FORMS
from lab.reader.model_card import CARD, CURVES
from lab.reader.training_record import TRAINING
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.checks.demo import asset

IMAGES, OPEN_IMAGES = 6, 5
OPEN_FLOOR = {"reader": 0.8, "reader-llava": 0.4}
"""Share of right open answers, well below what the cards say of many more questions (0.97 and 0.65)."""


@pytest.fixture(scope="module", params=FORMS)
def folder(request):
    return asset(FORMS[request.param].folder)


def audited(model, out, probes, images, arms, limit=IMAGES, **more):
    scenes = asset("scenes", "development")
    config = AuditConfig(
        model=str(model),
        probes=scenes / probes,
        images=scenes / images,
        out=out,
        arms=arms,
        matched_controls=False,
        dtype="float32",
        device="cpu",
        limit=limit,
        # As both were trained: a token that stays is where it was.
        positions="preserve",
        **more,
    )
    return audit(config).frame()


@pytest.fixture(scope="module")
def rows(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("reader") / "run"
    return audited(folder, out, "probes.jsonl", "images", ["full", "target:0.3", "anti_evidence:0.3"])


def test_answers_most_shipped_probes(rows):
    correct = rows.groupby("arm")["correct"].mean()
    assert len(rows) == 3 * 2 * IMAGES
    assert correct["full"] >= 0.8
    assert correct["target:0.3"] >= 0.8


def test_target_keeps_the_evidence(rows):
    coverage = rows[rows["label"] == "yes"].groupby("arm")["ecr"].mean()
    assert coverage["target:0.3"] > 0.9
    assert coverage["anti_evidence:0.3"] == 0.0


def test_answers_most_open_questions_in_words_and_none_without_their_evidence(folder, tmp_path):
    arms = ["full", "anti_evidence:0.3"]
    rows = audited(folder, tmp_path / "run", "open_probes.jsonl", "open_images", arms, OPEN_IMAGES, box_source="gt")
    exact = rows.groupby("arm")["exact"].mean()
    assert len(rows) == 2 * 2 * OPEN_IMAGES
    assert exact["full"] >= OPEN_FLOOR[folder.name]
    assert exact["anti_evidence:0.3"] <= 0.1
    assert (rows.loc[rows["arm"] == "anti_evidence:0.3", "ecr"] == 0.0).all()
    right = rows[rows["exact"]]
    assert (right["answer"].str.casefold() == right["accepted"].str.casefold()).all()


def test_checkpoint_is_small_and_stock(folder):
    model = AutoModelForImageTextToText.from_pretrained(folder)
    form = FORMS[model.config.model_type]
    assert form.folder == folder.name
    assert type(model).__module__.startswith(f"transformers.models.{form.name}")
    assert model.dtype == torch.bfloat16
    assert sum(file.stat().st_size for file in folder.iterdir()) < 25e6


def test_figures_told_beside_the_tables_are_those_of_the_tables():
    """The story of the second form sets its own table of positions beside figures that the card takes from rows."""
    measured, told = (asset("reader-llava") / CARD).read_text(encoding="utf-8").split("**Positions.**")
    arms = re.findall(r"^\| `(\w+:0\.3)` \| (0\.\d{3}) \|", told, re.MULTILINE)
    assert len(arms) == 7
    for arm, accuracy in arms:
        assert f"\n| `{arm}` | {accuracy} (" in measured


def test_card_comes_with_its_sources(folder):
    card = (folder / CARD).read_text(encoding="utf-8")
    headings = ("Held-out figures", "Held-out figures: open questions", "What it was trained to be", "Data", "Training")
    for heading in (*headings, "Limits"):
        assert f"\n## {heading}\n" in card
    assert "<polyline" in (folder / CURVES).read_text(encoding="utf-8")
    legs = json.loads((folder / TRAINING).read_text(encoding="utf-8"))["history"]["legs"]
    assert len(legs) >= 2
    for number, leg in enumerate(legs, start=1):
        assert f"\n| {number} | {leg['progress']} |" in card
