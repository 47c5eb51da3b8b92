"""sightline run: options come from the configuration, and the table it prints is whole in any width."""

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest
import typer
from pydantic import Field, create_model
from typer.main import get_command
from typer.testing import CliRunner

from sightline import AuditConfig, load_run
from sightline.auditing.config import flag_of
from sightline.checks.doctor import Examination
from sightline.cli import app
from sightline.commands.options import Overrides, with_options
from sightline.commands.run import print_summary, summary
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.summaries import arm_summary
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.yes_no import make_run, says_no

Printed = Callable[[Path, int], list[str]]
NEEDED = ["--model", "m", "--probes", "p.jsonl", "--images", "i", "--out", "o"]


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> list[AuditConfig]:
    """What would have been audited."""
    seen: list[AuditConfig] = []

    def audit(config: AuditConfig) -> SimpleNamespace:
        seen.append(config)
        return SimpleNamespace(bad_images={}, failed={})

    monkeypatch.setattr("sightline.auditing.audit.audit", audit)
    monkeypatch.setattr("sightline.commands.run.print_summary", lambda run: None)
    return seen


def test_every_field_has_exactly_one_flag_and_a_sentence_and_every_flag_its_field() -> None:
    command: Any = get_command(app)
    options = {parameter.name: parameter for parameter in command.get_command(None, "run").params}
    assert set(options) - {"help"} == {*AuditConfig.model_fields, "config"}
    for name, field in AuditConfig.model_fields.items():
        assert options[name].opts == [flag_of(name)]
        assert (field.description or "").endswith("."), name
        assert not options[name].hidden
    spelled = [flag for option in options.values() for flag in (*option.opts, *option.secondary_opts)]
    assert len(spelled) == len(set(spelled))


def test_a_field_is_all_that_an_option_needs() -> None:
    Order: Any = Literal["first", "last"]  # noqa: N806
    larger = create_model(
        "Larger",
        __base__=AuditConfig,
        scorer=(str, Field("yes_no", description="How an answer becomes a number.")),
        patience=(float | None, Field(None, description="In seconds.")),
        order=(Order, Field("first", description="What comes first.")),
        quiet=(bool, Field(False, description="Says nothing.")),
        folders=(list[str], Field(default_factory=list, description="Where.")),
        hidden=(int, 1),
    )
    seen: dict[str, Any] = {}

    def command(given: Any) -> None:
        seen.update(given)

    command.__annotations__["given"] = Annotated[dict[str, Any], Overrides(larger, "How")]

    small = typer.Typer()
    small.command()(with_options(command))
    words = ["--scorer", "open", "--patience", "0.5", "--order", "last", "--quiet", "--folders", "a", "--folders", "b"]
    assert CliRunner().invoke(small, words).exit_code == 0
    wanted = {"scorer": "open", "patience": 0.5, "order": "last", "quiet": True, "folders": ["a", "b"]}
    assert seen == wanted
    page = CliRunner().invoke(small, ["--help"], env={"COLUMNS": "200"}).output
    assert "How an answer becomes a number." in page
    assert "[default: (yes_no)]" in page
    assert "--hidden" not in page


def test_help_shows_panels_defaults_and_what_is_required() -> None:
    page = sightline("run", "--help").output
    for told in ("What is audited", "Speed", "Output", "[default: (paper)]", "[default: (8; on a GPU 64)]"):
        assert told in page
    assert page.count("Required.") == 5
    assert "--max-pixels" not in page


def test_flags_become_the_config_and_win_over_the_file(audited: list[AuditConfig], tmp_path: Path) -> None:
    words = [*NEEDED, "--arm", "full", "--arm", "scope:0.4:alpha=0,beta=1", "--interventions", "deletion,occlusion"]
    words += ["--no-matched-controls", "--limit", "3", "--positions", "compact"]
    words += ["--image-option", "max_pixels=802816", "--image-option", "min_pixels=null"]
    sightline("run", *words)
    assert audited[0].model_dump(exclude_unset=True) == {
        "model": "m", "probes": Path("p.jsonl"), "images": Path("i"), "out": Path("o"),
        "arms": ["full", "scope:0.4:alpha=0,beta=1"], "interventions": ["deletion", "occlusion"],
        "matched_controls": False, "limit": 3, "positions": "compact",
        "image_options": {"max_pixels": 802816, "min_pixels": None},
    }  # fmt: skip
    file = tmp_path / "run.yaml"
    file.write_text("seed: 3\narms: [full]\nimage_options: {min_pixels: 1, max_pixels: 2}\n")
    sightline("run", *NEEDED, "--config", file, "--image-option", "max_pixels=4")
    assert audited[1].image_options == {"min_pixels": 1, "max_pixels": 4}
    assert (audited[1].seed, audited[1].arms) == (3, ["full"])


def test_what_is_missing_or_wrong_is_named_by_its_real_flag(refused: Refused) -> None:
    for words, line in (
        (NEEDED, "--arm is needed (or 'arms:' in the config file)"),
        (NEEDED[2:], "--model is needed (or 'model:' in the config file)"),
        ([*NEEDED, "--arm", "full", "--limit", "0"], "--limit: Input should be greater than or equal to 1"),
        ([*NEEDED, "--image-option", "max_pixels"], "--image-option max_pixels: write --image-option NAME=VALUE"),
    ):
        assert refused(line, sightline, "run", *words) == line


def test_backbones_lists_every_architecture_with_its_options_and_positions(refused: Refused) -> None:
    page = sightline("backbones", width=160).output
    assert "qwen3_vl  positions: preserve" in page
    assert "llava  positions: compact" in page
    assert "Most tiles, the thumbnail not counted." in page
    assert "artifact: 802816" in page
    alone = sightline("backbones", "llava").output
    assert "crop_blind" in alone
    assert "max_pixels" not in alone
    refused("did you mean 'llava'", sightline, "backbones", "lava")


def test_ask_and_doctor_refuse_what_cannot_be_before_they_load_a_model(
    data: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, refused: Refused
) -> None:
    for module in ("checks.doctor", "answering.answerer"):
        monkeypatch.setattr(f"sightline.{module}.load_backbone", lambda *_, **__: pytest.fail("a model was loaded"))
    refused("nowhere.png does not exist", sightline, "doctor", "--model", "m", "--image", tmp_path / "nowhere.png")
    image = next((data / "mini_textocr").rglob("*.jpg"))
    words = ["What?", "--model", data / "tiny" / "qwen3vl", "--image", image, "--arm", "scope:0.3"]
    refused("scope cannot run on Qwen3VL", sightline, "ask", *words)


def test_doctor_takes_image_options(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(
        "sightline.checks.doctor.examine",
        lambda *_, image_options, **__: seen.append(image_options) or Examination((), {}),
    )
    sightline("doctor", "--model", "m", "--image-option", "max_tiles=2")
    assert seen == [{"max_tiles": 2}]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """``printed(run, width)``: lines of its table."""

    def call(path: Path, width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        print_summary(load_run(path))
        return capsys.readouterr().out.splitlines()

    return call


def test_every_number_is_printed_whole(tmp_path: Path, printed: Printed) -> None:
    arms = ("full", "target:0.3", "random:0.15", "visionzip:0.3")
    run = make_run(tmp_path / "run", images=6, arms=arms)
    for width in (80, 100, 200):
        lines = printed(run, width)
        assert not any("…" in line for line in lines)
        for arm in arms:
            (line,) = (line for line in lines if line.startswith(f"{arm} "))
            assert len(re.findall(r"\d\.\d{3}\b", line)) == 6
            assert len(re.findall(r"\b\d+\.\d{2}\b", line.removeprefix(arm))) == 2
            assert len(line) <= width


def test_the_summary_is_of_plain_rows_alone_with_the_numbers_of_the_report(tmp_path: Path, printed: Printed) -> None:
    changed = ("full+remove_evidence", "target:0.3+restore_evidence=0.25", "target:0.3+remove_evidence")
    run = make_run(tmp_path / "run", images=8, arms=("full", "target:0.3", *changed))
    lines = printed(run, 80)
    assert [line.split()[0] for line in lines if re.match(r"(full|target)", line)] == ["full", "target:0.3"]
    frame = plain_rows(load_run(run).frame())
    table, report = summary(frame), arm_summary(frame, draws=10)
    shown = {"Accuracy": "accuracy", "hFPR": "hfpr", "PosECR": "pos_ecr", "Unsupported": "unsupported"}
    for label, name in shown.items():
        assert table[label].tolist() == pytest.approx(report[name].tolist(), nan_ok=True)


def test_oracles_are_printed_under_a_heading_of_their_own_with_columns_in_line(
    tmp_path: Path, printed: Printed
) -> None:
    run = make_run(tmp_path / "run", images=6, arms=("full", "protected:0.3", "target:0.3"))
    lines = printed(run, 120)
    found = {line.split()[0]: line for line in lines if re.match(r"(full|target|protected)", line)}
    order = [lines.index(line) for line in found.values()]
    heads = ("Box-free", "Annotation")
    free, oracles = (next(i for i, line in enumerate(lines) if line.startswith(head)) for head in heads)
    assert list(found) == ["full", "target:0.3", "protected:0.3"]
    assert free < order[0] < order[1] < oracles < order[2]
    assert lines[oracles].startswith("Annotation-box oracles: diagnostics, not a deployable ranking")
    ends = [[match.end() for match in re.finditer(r"\S+", line)][1:] for line in found.values()]
    assert ends[0] == ends[1] == ends[2], "numbers end at the same column in every panel"


def test_a_model_from_whose_answers_nothing_can_be_read_is_called_so(tmp_path: Path, printed: Printed) -> None:
    said = "nothing about pruning can be read from its answers"
    guessing = make_run(tmp_path / "guessing", arms=("full", "target:0.3"), edit_row=says_no)
    assert f"The model answers at chance: {said}" in " ".join(printed(guessing, 200))
    few = make_run(tmp_path / "few", images=4, arms=("full", "target:0.3"))
    assert f"4 images are fewer than 10: {said}." in printed(few, 200)
    reading = make_run(tmp_path / "reading", images=30, arms=("full", "target:0.3"))
    assert said not in " ".join(printed(reading, 200))
