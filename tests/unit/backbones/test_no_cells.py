"""Models whose image tokens come from no place in the image: answers and legibility alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from torch import Tensor
from typer.testing import CliRunner

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.auditing.loop import GEOMETRY
from sightline.backbones import Backbone, load_backbone
from sightline.backbones.base import model_logits
from sightline.backbones.found_cells import picture_scale
from sightline.backbones.general import General
from sightline.checks.doctor import examined
from sightline.cli import app
from sightline.core.prefix import NO_CELLS
from sightline.core.selection import Budget
from sightline.report.build import build_report
from sightline.rows.run import Run
from tests.refusals import Refused
from tests.unit.backbones.named import QUESTION, TARGET, Zoo, photograph, prefix_of

SIZE = (240, 200)
"""Above the 192 pixels up to which the tiny deepseek_ocr2 looks at the whole page alone."""


@pytest.fixture(scope="module")
def backbone(zoo: Zoo) -> Backbone:
    return load_backbone(str(zoo("deepseek_ocr2")), dtype="float32", device="cpu")


def test_full_gives_the_logits_of_the_model_itself(backbone: Backbone) -> None:
    image, prompt = photograph(*SIZE), backbone.prompt(QUESTION, TARGET)
    encoded = backbone.encode([backbone.preprocess(image)])[0]
    assert not encoded.placed
    assert np.isnan(encoded.cells).all()
    ours = backbone.language.prefix_logits(prefix_of(backbone, encoded, prompt, torch.arange(encoded.n)))
    own = model_logits(backbone, image, (*prompt.head, *prompt.tail), len(prompt.head))
    assert float((ours - own).abs().max()) < 1e-4


def test_an_image_is_shown_as_large_as_a_budget_allows(backbone: Backbone, refused: Refused) -> None:
    n = backbone.token_count(SIZE)
    pixels = backbone.preprocess(photograph(*SIZE), budget=Budget(keep=0.5))
    seen = backbone.encode([pixels])[0]
    assert (seen.n, seen.usual_n, n) == (257, n, 257 + 4 * 144)
    assert backbone.under(pixels.options).shown_size(SIZE) == (192, 160)
    # The page is enlarged to 256 pixels then, which adds nothing to the 192 that are left.
    assert seen.sampling is not None
    assert seen.sampling.scale == pytest.approx(192 / 240)
    words = "makes 257 visual tokens on a 'deepseek_ocr2' model however small"
    refused(words, backbone.preprocess, photograph(*SIZE), budget=Budget(keep=0.1))


def test_what_other_types_say(zoo: Zoo) -> None:
    for kind, no_cells in (("idefics2", True), ("kosmos-2", True), ("got_ocr2", False)):
        other = load_backbone(str(zoo(kind)), device="cpu")
        assert (other.no_cells is not None, other.fixed is not None) == (no_cells, True), kind
    assert Backbone.no_cells is None
    assert General.fixed_tokens == Backbone.fixed_tokens


# KOSMOS-2, whose processor writes ids of ordinary words where its queries stand, by their places alone.


@pytest.fixture(scope="module")
def kosmos(zoo: Zoo) -> General:
    loaded = load_backbone(str(zoo("kosmos-2")), dtype="float32", device="cpu")
    assert isinstance(loaded, General)
    return loaded


def test_queries_stand_where_the_processor_says_and_the_same_words_in_a_question_are_read(kosmos: General) -> None:
    queries = range(kosmos.image_token_id, kosmos.image_token_id + 8)
    question, image = kosmos.tokenizer.decode(queries), photograph()
    prompt = kosmos.prompt(question)
    own = kosmos.processor(text=[kosmos.render(question, None)], images=[image], return_tensors="pt")
    sequence = torch.tensor([[*prompt.head, *kosmos.span_ids(image.size), *prompt.tail]])
    assert torch.equal(sequence, own["input_ids"])
    assert set(queries) & set(prompt.tail)
    assert torch.equal(kosmos.sequence_types(sequence), own["image_embeds_position_mask"].int())


def test_it_says_of_an_image_what_its_own_generation_says(kosmos: General) -> None:
    prompt, answers = kosmos.prompt(QUESTION, TARGET), []
    for image in (photograph(), photograph(64, 64, seed=8)):
        encoded = kosmos.encode([kosmos.preprocess(image)])[0]
        prefix = prefix_of(kosmos, encoded, prompt, torch.arange(encoded.n))
        ours = kosmos.language.prefix_logits(prefix)
        asked = kosmos.processor(text=[kosmos.render(QUESTION, None)], images=[image], return_tensors="pt")
        with torch.inference_mode():
            theirs = kosmos.model(**asked).logits[0]
            said = kosmos.model.generate(**asked, max_new_tokens=3, do_sample=False)[0, -3:].tolist()
        assert float((ours - theirs).abs().max()) < 1e-4
        assert kosmos.language.generate(prefix, 3, frozenset()) == said
        answers.append(ours[-1])
    assert (answers[0] - answers[1]).abs().max() > 1e-3


def test_an_audit_of_it_has_rows_of_answers_that_end_as_published(
    kosmos: General, asked: Path, zoo: Zoo, tmp_path: Path
) -> None:
    frame = audited(zoo("kosmos-2"), asked, tmp_path / "run", "full").frame()
    assert frame["correct"].notna().all()
    assert (frame["legibility"] > 0).all()
    assert kosmos.render("Is it?", " yes") == "Question: Is it? Answer: yes</s>"


# Pictures that are prepared in other ways, doctor's checks, and audits of what is left to ask.


def picture(image: Image.Image, size: tuple[int, int]) -> dict[str, Tensor]:
    small = np.asarray(image.resize(size, Image.Resampling.BILINEAR), dtype=np.float32)
    return {"pixel_values": torch.from_numpy(small).permute(2, 0, 1)[None]}


def padded(image: Image.Image) -> dict[str, Tensor]:
    shown = picture(image, (100, 80))["pixel_values"]
    return {"pixel_values": torch.nn.functional.pad(shown, (30, 30, 50, 50))}


def patches(image: Image.Image) -> dict[str, Tensor]:
    whole = picture(image, (160, 160))["pixel_values"]
    rows = whole.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 1, 4, 2, 3, 5)
    return {"pixel_values": rows.reshape(1, 3, 16, -1)}


@pytest.mark.parametrize(("prepare", "expected"), [
    (lambda image: picture(image, (100, 80)), 0.25),
    (lambda image: picture(image, (200, 40)), 0.25),  # finer across than down: as many pixels in all
    (lambda image: picture(image, (800, 640)), 1.0),  # enlarging adds nothing
    (padded, 0.25),
    (patches, None),  # neighbours there are none in the image
])  # fmt: skip
def test_the_scale_is_that_of_the_pictures(
    prepare: Callable[[Image.Image], dict[str, Tensor]], expected: float | None
) -> None:
    found = picture_scale((400, 320), prepare, "pixel_values")
    assert found == (None if expected is None else pytest.approx(expected, rel=0.02))


def test_doctor_leaves_out_what_is_about_cells_and_passes(backbone: Backbone, kosmos: General) -> None:
    left_out = ["cell_count", "cells_by_ramps", "bright_word", "positions_pruned", "shorter_prefix", "signal_rows"]
    for loaded, run in ((backbone, ["full", "resize"]), (kosmos, ["full"])):
        found = examined(loaded, photograph(120, 90), "tiny")
        assert [check.words for check in found if not check.passed] == []
        assert [check.name for check in found if not check.applies] == left_out
        assert found.verdict == "all 7 checks passed, 6 do not apply"
        said = found.as_dict()
        assert (said["passed"], said["checks"]["bright_word"]["passed"]) == (True, None)
        assert NO_CELLS in said["served_by"]["images"]
        assert [name for name, answer in said["selectors"].items() if answer == "yes"] == run


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four pages with a word, asked for and for another one."""
    folder = tmp_path_factory.mktemp("pages")
    lines: list[dict[str, object]] = [{"sightline_probes": 1, "construction": {}, "source": {}}]
    for number in range(4):
        page = Image.new("RGB", SIZE, (250, 250, 250))
        ImageDraw.Draw(page).text((60, 40 * number + 10), "EXIT", fill=(0, 0, 0))
        page.save(folder / f"{number}.png")
        for label, word in (("yes", "EXIT"), ("no", "DOOR")):
            lines.append(
                {
                    "id": f"{number}-{label}", "image": f"{number}.png", "image_id": str(number), "label": label,
                    "question": f'Does the image contain "{word}"?', "target_text": word, "source_text": "EXIT",
                    "regions": [[0.25, 0.2 * number + 0.05, 0.4, 0.2 * number + 0.11]],
                }
            )  # fmt: skip
    (folder / "probes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return folder


def audited(model: Path, asked: Path, out: Path, *arms: str) -> Run:
    probes = asked / "probes.jsonl"
    return audit(AuditConfig(model=str(model), probes=probes, images=asked, arms=list(arms), out=out, device="cpu"))


@pytest.fixture(scope="module")
def run(zoo: Zoo, asked: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    arms = ("full", "resize:0.5", "full+occlude_evidence")
    return audited(zoo("deepseek_ocr2"), asked, tmp_path_factory.mktemp("run") / "run", *arms)


def test_arms_that_prune_are_refused_in_words(zoo: Zoo, asked: Path, tmp_path: Path, refused: Refused) -> None:
    for arm, words in (
        ("grid:0.5", "grid cannot run"),
        ("random:0.5", "random cannot run"),
        ("full+remove_evidence", "arm 'full+remove_evidence' cannot run"),
    ):
        refused(words, audited, zoo("deepseek_ocr2"), asked, tmp_path / "run", "full", arm)


def test_rows_are_empty_where_cells_would_tell_and_have_legibility(run: Run) -> None:
    frame = run.frame()
    assert run.arms == ["full", "resize:0.5", "full+occlude_evidence"]  # and none of the matched controls
    assert NO_CELLS in run.manifest["served_by"]["images"]
    assert frame[[name for name in GEOMETRY if name != "legibility"]].isna().all(axis=None)
    assert set(frame["kept_mask"]) == {b""}
    assert frame["correct"].notna().all()
    legible = frame.groupby("arm")["legibility"].mean()
    assert legible["full"] == pytest.approx(12, rel=0.02)  # 0.06 of 200 pixels, enlarged to tiles
    assert legible["resize:0.5"] == pytest.approx(12 * 192 / 240, rel=0.02)
    assert set(run.images.column("cells").to_pylist()) == {b""}


def test_pictures_report_and_gates_do_without_cells(run: Run, tmp_path: Path) -> None:
    drawn = run.picture("3-yes", "full")
    assert np.asarray(drawn)[5, 5].min() > 240  # nothing is dimmed
    page = build_report([run.path], tmp_path).read_text(encoding="utf-8")
    assert NO_CELLS in page
    assert "dimmed cells did not" not in page
    for rule, code, words in (
        ("keep(resize:0.5) <= 0.5", 0, "passed"),
        ("accuracy(full) > 0", 1, "the model answers at chance"),  # as of any model with random weights
        ("posecr(resize:0.5) >= 0.1", 1, NO_CELLS),
    ):
        said = CliRunner().invoke(app, ["gate", str(run.path), "--rule", rule, "--least-n", "1"])
        assert (said.exit_code, words in " ".join(said.output.split())) == (code, True), said.output
