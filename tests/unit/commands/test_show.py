"""``sightline show``: one probe on the terminal and as a picture."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from PIL import Image

from sightline.cli import main

PROBE = "textocr-f0af1d791168279c:hard-small-pos"


@pytest.fixture
def show(data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """``show(...)`` -> exit code, standard output and standard error of ``sightline show RUN ...``."""

    def call(*arguments: object, run: Path = data / "recorded_run") -> tuple[int, str, str]:
        monkeypatch.setenv("COLUMNS", "120")
        monkeypatch.setattr(sys, "argv", ["sightline", "show", str(run), *map(str, arguments)])
        try:
            main()
            code: object = 0
        except SystemExit as end:
            code = end.code
        said = capsys.readouterr()
        return int(code or 0), said.out, said.err  # type: ignore[call-overload]

    return call


def test_it_prints_the_question_the_region_and_every_arm(show) -> None:
    code, said, _ = show(PROBE)
    assert code == 0
    lines = [line.split() for line in said.splitlines()]
    assert ["probe", PROBE, "(small_positive)"] in lines
    assert ["label", "yes"] in lines
    assert any(line[:4] == ["question", "Does", "the", "image"] for line in lines)
    assert any(line[0] == "regions" and "pixels" in line for line in lines if line)
    arms = [line[0] for line in lines if line and line[0] in ("full", "target:0.3", "full+blank", "fastv:0.5")]
    assert arms == ["full", "target:0.3", "fastv:0.5", "full+blank"], "in the order of the run, interventions too"


def test_an_arm_is_shown_with_its_answer_margin_tokens_and_coverage(show, data: Path) -> None:
    from sightline.rows import load_run

    row = load_run(data / "recorded_run").row(PROBE, "target:0.3")
    _, said, _ = show(PROBE, "--arm", "target:0.3")
    (line,) = (line.split() for line in said.splitlines() if line.startswith("target:0.3"))
    answer = [row["predicted"], "right" if row["correct"] else "wrong", f"{row['margin']:+.3f}"]
    assert line[1:6] == [*answer, str(row["k_tokens"]), f"{row['ecr']:.3f}"]
    assert "full " not in said


def test_it_writes_the_named_arms_side_by_side_as_sharp_as_the_file(show, data: Path, tmp_path: Path) -> None:
    arms = ("--arm", "full", "--arm", "target:0.3")
    code, said, noted = show(PROBE, *arms, "--out", tmp_path / "p.png", "--images", data / "mini_textocr")
    assert code == 0
    image = Image.open(data / "mini_textocr" / "train" / "f0af1d791168279c.jpg")
    picture = Image.open(tmp_path / "p.png")
    assert picture.width > 2 * image.width
    assert picture.height > image.height
    assert f"{picture.width} x {picture.height} pixels, from the image file" in said
    assert not noted


def test_without_the_images_it_says_that_the_picture_is_the_preview(show, tmp_path: Path) -> None:
    code, said, noted = show(PROBE, "--arm", "full", "--out", tmp_path / "p.jpg")
    assert code == 0
    assert "from the stored preview" in said
    assert "--images" in noted
    assert Image.open(tmp_path / "p.jpg").format == "JPEG"


def test_what_cannot_be_shown_is_one_line(show, tmp_path: Path) -> None:
    for arguments, sentence in (
        (("nobody",), "has no probe 'nobody'"),
        ((PROBE, "--arm", "taget:0.3"), "did you mean target:0.3?"),
        ((PROBE, "--out", tmp_path / "p.xyz"), "no kind of picture ends in '.xyz'; write .png or .jpg"),
    ):
        code, _, said = show(*arguments)
        assert code == 2
        assert said.startswith("error: ")
        assert sentence in said
        assert len(said.splitlines()) == 1


def test_an_unfinished_run_is_said_to_be_one(show, data: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(data / "recorded_run", tmp_path / "run"))
    next(path for path in sorted(run.rglob("rows/*/00000.parquet")) if "grid" in path.parent.name).unlink()
    code, _, noted = show(PROBE, "--arm", "full", run=run)
    assert code == 0
    assert "the run is not finished" in noted
