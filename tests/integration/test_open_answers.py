"""Open questions through a whole audit: what is asked, what rows say, who sees what."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline import Probe, Run, audit, load_backbone
from sightline.backbones.prompting import OPEN_INSTRUCTION
from sightline.commands.run import print_summary
from sightline.gate.decisions import run_gate
from sightline.probes import ProbeSet, write_probes
from sightline.rows.source import read_source
from tests.integration.conftest import facts, make_config, refused_with
from tests.refusals import Refused

Audited = Callable[..., Run]
ARMS = ["full", "target:0.4", "target_grid:0.4:score=focus", "fastv:0.5"]
QUESTIONS = (
    ("What is the name of the shop?", ("Corner Shop", "corner shop"), "Station"),
    ("Which number stands beside total?", ("12",), "21"),
    ("What is written on the sign?", ("exit",), "entry"),
)


@pytest.fixture(scope="module")
def questions(data: Path) -> list[Probe]:
    images = sorted((data / "mini_textocr").rglob("*.jpg"))[: len(QUESTIONS)]
    return [
        Probe(
            id=f"open-{number}",
            image=str(image.relative_to(data / "mini_textocr")),
            image_id=image.stem,
            question=question,
            label="open",
            target_text="",
            source_text="",
            regions=((0.1, 0.1, 0.3, 0.2), (0.5, 0.5, 0.7, 0.6)),
            roles=("answer_value", "field_label"),
            answers=answers,
            task=("textvqa", "docvqa", "ocrbench")[number],
            decoy=decoy,
        )
        for number, (image, (question, answers, decoy)) in enumerate(zip(images, QUESTIONS, strict=True))
    ]


@pytest.fixture(scope="module")
def audited(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Audited:
    """Audits probes with a tiny checkpoint, each time into a folder of its own unless one is named."""

    def run(probes: Sequence[Probe], arms: Sequence[str] = ARMS, **settings: Any) -> Run:
        folder = settings.pop("folder", None) or tmp_path_factory.mktemp("open")
        write_probes(folder / "probes.jsonl", ProbeSet(tuple(probes)))
        asked = {"arms": list(arms), "image_options": {"max_pixels": 50176}, **settings}
        return audit(make_config(data, folder / "probes.jsonl", folder / "run", "qwen3vl", **asked))

    return run


@pytest.fixture(scope="module")
def usual(audited: Audited, questions: list[Probe]) -> Run:
    """The questions under all arms."""
    return audited(questions)


def test_rows_of_open_questions_have_answer_score_and_coverage(usual: Run, questions: list[Probe]) -> None:
    frame = usual.frame()
    assert usual.manifest["scorer"] == "open"
    assert len(frame) == len(ARMS) * len(questions)
    assert set(frame["label"]) == {"open"}
    assert (frame["answer_tokens"] <= 32).all()
    assert (frame["answer_loss"] > 0).all()
    assert (frame["correct"] == (frame["score"] >= 0.5)).all()
    by_task = {"textvqa": "soft_accuracy", "docvqa": "anls", "ocrbench": "ocrbench"}
    assert all(row["score"] == row[by_task[row["task"]]] for row in frame.to_dict("records"))
    assert frame["worst_region"].notna().all()


def test_an_arm_answers_alike_beside_others_and_knows_nothing_of_answers_and_regions(
    audited: Audited, questions: list[Probe], usual: Run
) -> None:
    """With other answers, decoys, roles and regions every arm keeps the same tokens and says the same."""
    together = facts(usual.frame())
    apart = facts(pd.concat([audited(questions, [arm]).frame() for arm in ARMS[:3]]))
    same = together[together["arm"].isin(ARMS[:3])].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, apart)
    changes: dict[str, Any] = {"answers": ("something else",), "decoy": "another", "roles": ("context",)}
    other = [replace(probe, **changes, regions=((0.8, 0.8, 0.9, 0.9),)) for probe in questions]
    columns = ["arm", "probe_id", "kept_mask", "answer"]
    pd.testing.assert_frame_equal(facts(audited(other).frame())[columns], together[columns])


def test_verification_asks_about_answer_and_decoy_which_ranking_compares(
    audited: Audited, questions: list[Probe]
) -> None:
    run = audited(questions, ["full"], scorer="verification")
    assert sorted(run.frame()["label"]) == ["no"] * 3 + ["yes"] * 3
    asked = {probe["id"]: probe["question"] for probe in run.probes}
    assert asked["open-1:decoy"] == (
        'Given the image, answer the OCR question: "Which number stands beside total?". Is the answer "21"? '
        "Answer yes or no."
    )
    frame = audited(questions, ["full", "target:0.4"], scorer="candidate_ranking").frame()
    assert (frame["preference"] == frame["decoy_loss"] - frame["gold_loss"]).all()
    assert (frame["correct"] == (frame["preference"] > 0)).all()


@pytest.mark.usefixtures("no_weights")
def test_questions_that_a_scorer_cannot_judge_are_refused_before_a_model_is_loaded(
    audited: Audited, questions: list[Probe], refused: Refused
) -> None:
    open_one = "'open-0' is an open question, which --scorer yes_no cannot judge"
    refused_with(lambda: audited(questions, ["full"], scorer="yes_no"), open_one)
    bare = [replace(probe, decoy="") for probe in questions]
    words = "'open-0' has no decoy, which --scorer candidate_ranking compares"
    refused(words, audited, bare, ["full"], scorer="candidate_ranking")


def test_the_protocols_prompt_is_asked_and_spans_are_the_questions(data: Path) -> None:
    backbone = load_backbone(str(data / "tiny" / "qwen3vl"), dtype="float32", device="cpu")
    text = backbone.render("What is the total?", None, in_words=True)
    assert backbone.open_system is not None
    assert backbone.open_system in text
    assert f"What is the total?\n{OPEN_INSTRUCTION}" in text
    prompt = backbone.prompt("What is the total?", "What is the total?", in_words=True)
    ids = [*prompt.head, *prompt.tail]
    for span in ("target", "question"):
        said = backbone.tokenizer.decode([ids[i] for i in prompt.spans[span]])
        assert "total" in said
        assert "phrase" not in said
    focus = backbone.tokenizer.decode([ids[i] for i in prompt.spans["focus"]])
    assert "total" in focus
    assert "What" not in focus


def test_an_answer_that_is_cut_off_at_its_longest_is_marked_and_counted(
    audited: Audited, questions: list[Probe], capsys: pytest.CaptureFixture[str], refused: Refused
) -> None:
    """A tiny model says no stop token in three tokens; 32 is the usual limit and part of what a folder fixes."""
    run = audited(questions, ["full", "target:0.4"], longest_answer=3)
    frame = run.frame()
    assert (frame["cut_off"] == (frame["answer_tokens"] == 3)).all()
    assert frame["cut_off"].any()
    count = int(frame["cut_off"].sum())
    words = f"{count} of {len(frame)} answers were cut off at the longest allowed (3 tokens)"
    print_summary(run)
    assert words in " ".join(capsys.readouterr().out.split())
    assert any(words in note for note in read_source([run.path]).notes)
    _, notes = run_gate(run.path, ["accuracy(full) > 0"])
    assert any(words in note for note in notes)
    again = {"folder": run.path.parent, "longest_answer": 4}
    refused("longest_answer 3, this command has 4", audited, questions, ["full"], **again)


def test_a_target_that_is_not_in_the_question_is_marked_and_counted(
    audited: Audited, questions: list[Probe], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        replace(probe, label="yes", answers=(), decoy="", roles=(), task="", target_text=target, regions=())
        for probe, target in zip(questions, ("shop", "zzz", "sign"), strict=True)
    ]
    run = audited(asked, ["full", "target:0.4", "target:0.4:score=question", "target:0.4:score=prompt"])
    found = run.frame().set_index(["arm", "probe_id"])["query_found"]
    assert found["target:0.4"].tolist() == [True, False, True]
    assert found["target:0.4:score=question"].all()
    assert found["full"].isna().all()
    assert found["target:0.4:score=prompt"].isna().all()
    words = "1 of 3 rows of target:0.4"
    print_summary(run)
    assert words in " ".join(capsys.readouterr().out.split())
    assert any(words in note for note in read_source([run.path]).notes)
