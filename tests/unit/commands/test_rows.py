"""sightline rows, show, verify and compact: what a run folder holds, and whether it is whole."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from sightline import SightlineError, load_run
from sightline.cli import app, main
from sightline.store.folder import PROBES, RunFolder
from sightline.store.leases import locked
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.yes_no import changed, make_run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    formula = changed(probe="img0000:yes", kind='=HYPERLINK("x")')
    return make_run(tmp_path_factory.mktemp("rows") / "run", images=4, arms=("full", "target:0.3"), edit_row=formula)


def printed(*words: object) -> str:
    return sightline("rows", *words).stdout


def test_every_format_has_the_rows_of_chosen_columns_and_arms(run: Path, tmp_path: Path, refused: Refused) -> None:
    whole = load_run(run).rows
    lines = list(csv.DictReader(io.StringIO(printed(run))))
    assert list(lines[0]) == whole.column_names
    assert [line["probe_id"] for line in lines] == whole.column("probe_id").to_pylist()
    assert [float(line["margin"]) for line in lines] == whole.column("margin").to_pylist()
    objects = [json.loads(line) for line in printed(run, "--format", "jsonl").splitlines()]
    assert [line["margin"] for line in objects] == whole.column("margin").to_pylist()
    printed(run, "--format", "parquet", "--out", tmp_path / "rows.parquet")
    assert pq.read_table(tmp_path / "rows.parquet").equals(whole)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.parquet"]

    frame = pd.read_csv(io.StringIO(printed(run, "--columns", "ecr, probe_id", "--arm", "target:0.3")))
    assert list(frame.columns) == ["ecr", "probe_id"]
    assert len(frame) == 8
    refused("rows have no column 'probe'; did you mean 'probe_id'", printed, run, "--columns", "probe")
    for wrong in ("--columns=probe", "--arm=nope"):
        assert CliRunner().invoke(app, ["rows", str(run), wrong]).stdout == "", "refused before anything is written"
    kinds = printed(run, "--columns", "kind")
    assert printed(run, "--columns", "kind,,kind") == kinds
    assert printed(run, "--columns", "") == printed(run)
    assert '"\'=HYPERLINK(""x"")"' in kinds, "a formula is neutral in csv alone"
    (first, *_) = printed(run, "--columns", "kind", "--format", "jsonl").split("\n")
    assert json.loads(first) == {"kind": '=HYPERLINK("x")'}
    refused("run folders given where one is taken; --as-one joins", printed, run, run)
    assert printed(run, run, "--as-one") == printed(run)


Show = Callable[..., Result]
PROBE = "textocr-f0af1d791168279c:hard-small-pos"


@pytest.fixture
def show(data: Path) -> Show:
    return partial(sightline, "show", data / "recorded_run", width=120)


def test_it_prints_question_region_and_every_arm_with_answer_margin_tokens_and_coverage(show: Show, data: Path) -> None:
    lines = [line.split() for line in show(PROBE).stdout.splitlines()]
    assert ["probe", PROBE, "(small_positive)"] in lines
    assert ["label", "yes"] in lines
    assert any(line[:4] == ["question", "Does", "the", "image"] for line in lines)
    assert any(line[0] == "regions" and "pixels" in line for line in lines if line)
    arms = [line[0] for line in lines if line and line[0] in ("full", "target:0.3", "full+blank", "fastv:0.5")]
    assert arms == ["full", "target:0.3", "fastv:0.5", "full+blank"], "in the order of the run, interventions too"
    row = load_run(data / "recorded_run").row(PROBE, "target:0.3")
    said = show(PROBE, "--arm", "target:0.3").stdout
    (line,) = (line.split() for line in said.splitlines() if line.startswith("target:0.3"))
    answer = [row["predicted"], "right" if row["correct"] else "wrong", f"{row['margin']:+.3f}".replace("-", "−")]
    assert line[1:6] == [*answer, str(row["k_tokens"]), f"{row['ecr']:.3f}"]
    assert "full " not in said


def test_an_open_question_is_shown_with_what_is_accepted_and_needs_no_words_to_look_for(
    open_run: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(open_run, tmp_path / "run"))
    header, *records = (run / PROBES).read_text(encoding="utf-8").splitlines()
    bare = [{key: value for key, value in json.loads(each).items() if "_text" not in key} for each in records]
    (run / PROBES).write_text("\n".join([header, *map(json.dumps, bare)]), encoding="utf-8")
    said = sightline("show", run, "page000:value", "--arm", "full").stdout
    lines = [line.split() for line in said.splitlines()]
    assert ["accepted", bare[0]["answers"][0], "(10", "times)"] in lines
    assert ["task", "textvqa"] in lines


def test_a_picture_is_as_sharp_as_the_file_or_is_said_to_be_the_preview(show: Show, data: Path, tmp_path: Path) -> None:
    arms = ("--arm", "full", "--arm", "target:0.3")
    done = show(PROBE, *arms, "--out", tmp_path / "p.png", "--images", data / "mini_textocr")
    image = Image.open(data / "mini_textocr" / "train" / "f0af1d791168279c.jpg")
    picture = Image.open(tmp_path / "p.png")
    assert picture.width > 2 * image.width
    assert picture.height > image.height
    assert f"{picture.width} x {picture.height} pixels, from the image file" in done.stdout
    assert not done.stderr
    done = show(PROBE, "--arm", "full", "--out", tmp_path / "p.jpg")
    assert "from the stored preview" in done.stdout
    assert "--images" in done.stderr
    assert Image.open(tmp_path / "p.jpg").format == "JPEG"


def test_what_cannot_be_shown_is_one_line(
    show: Show,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    refused: Refused,
) -> None:
    for arguments, sentence in (
        (("nobody",), "has no probe 'nobody'"),
        ((PROBE, "--arm", "taget:0.3"), "did you mean 'target:0.3'?"),
        ((PROBE, "--out", tmp_path / "p.xyz"), "no kind of picture ends in '.xyz'; write .png or .jpg"),
    ):
        refused(sentence, show, *arguments)
    monkeypatch.setattr("sys.argv", ["sightline", "show", str(data / "recorded_run"), "nobody"])
    with pytest.raises(SystemExit) as ended:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (ended.value.code, line.startswith("error: ")) == (2, True)


def test_an_unfinished_run_is_said_to_be_one(data: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(data / "recorded_run", tmp_path / "run"))
    next(path for path in sorted(run.rglob("rows/*/00000.parquet")) if "grid" in path.parent.name).unlink()
    assert "the run is not finished" in sightline("show", run, PROBE, "--arm", "full").stderr


def test_verify_names_what_is_wrong_and_sets_it_aside(small_copy: Path, tmp_path: Path) -> None:
    # This run's probes are written without the first line's digest, and it has one shard.
    assert sightline("verify", small_copy).stdout.strip() == f"{small_copy}: 3 files, 12 rows, nothing wrong"
    file = RunFolder(small_copy).rows_file("full", 0)
    file.write_bytes(file.read_bytes()[:-1])
    assert sightline("verify", small_copy, small_copy, code=1).stdout.count("00000.parquet is damaged") == 2
    assert file.exists(), "nothing is touched without --repair"
    result = sightline("verify", small_copy, "--repair", code=1)
    assert "; set aside as 00000.parquet.damaged" in result.stdout
    assert "run the same `sightline run` again" in result.stdout
    assert not file.exists()
    assert load_run(small_copy).missing == 1
    (tmp_path / "empty").mkdir()
    assert "is not a run folder: it has no run.json" in sightline("verify", tmp_path / "empty", code=1).stdout


def test_compact_says_what_became_of_the_files_unless_somebody_writes_to_them(small_copy: Path, tmp_path: Path) -> None:
    before = load_run(small_copy).rows
    assert f"{small_copy}: 3 files of" in sightline("compact", small_copy).stdout
    assert f"{tmp_path / 'copy'}: 3 files" in sightline("compact", small_copy, "--out", tmp_path / "copy").stdout
    assert load_run(tmp_path / "copy").rows.equals(before)
    before = sorted(file.name for file in small_copy.rglob("*.parquet"))
    with locked(small_copy):
        for words in (["compact"], ["verify", "--repair"]):
            with pytest.raises(SightlineError, match="is being written by"):
                sightline(*words, small_copy)
        sightline("verify", small_copy)
    assert sorted(file.name for file in small_copy.rglob("*.parquet")) == before
