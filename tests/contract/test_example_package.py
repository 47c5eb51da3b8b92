"""The example plugin, installed: one thing of every kind, known by its entry points alone, and all of them at work."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from sightline.core.row import row_schema
from sightline.probes import read_probes
from sightline.rows.picture import TEXTS
from sightline.rows.run import load_run
from tests.conftest import DATA, REPOSITORY
from tests.contract.installed import python_with, run_with, sightline_with
from tests.warm_python import SOURCES

EXAMPLE = "sightline-example-plugin"
IMAGES = 4
ARMS = ("full", "target:0.3", "box_average:0.3")
N = 24 * 24
K = 173
"""ceil(0.3 * N)"""


@dataclass(frozen=True)
class Place:
    """Where the plugin is installed, with a checkpoint of its architecture and probes from its format."""

    site: Path
    checkpoint: Path
    table: Path
    probes: Path

    def sightline(self, *arguments: str | Path, code: int = 0) -> str:
        return sightline_with(self.site, *map(str, arguments), code=code)

    def audit(self, out: Path, *arguments: str) -> pd.DataFrame:
        """The rows of a run of all arms."""
        arms = [part for arm in ARMS for part in ("--arm", arm)]
        inputs = ("--model", self.checkpoint, "--probes", self.probes, "--images", DATA / "mini_textocr", "--out", out)
        self.sightline("run", *inputs, *arms, "--no-matched-controls", "--device", "cpu", *arguments)
        return load_run(out).frame()


@pytest.fixture(scope="module")
def place(example_site: Path, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("plugin")
    made = Place(example_site, folder / "checkpoint", folder / "words.csv", folder / "probes.jsonl")
    _write_table(made.table)
    built = made.sightline(
        "probes", "build", "--format", "boxes_csv", "--annotations", made.table, "--images", DATA / "mini_textocr",
        "--limit", str(IMAGES), "--out", made.probes,
    )  # fmt: skip
    assert f"{2 * IMAGES} probes ({IMAGES} yes, {IMAGES} no)" in built
    shutil.copytree(DATA / "tiny" / "llava", made.checkpoint)
    config = json.loads((made.checkpoint / "config.json").read_text(encoding="utf-8"))
    renamed = json.dumps({**config, "model_type": "gray_llava"})
    (made.checkpoint / "config.json").write_text(renamed, encoding="utf-8")
    return made


def _write_table(path: Path) -> None:
    """The annotations of the mini set's first ten images as the plugin's format has them."""
    document = json.loads((DATA / "mini_textocr" / "TextOCR_mini_val.json").read_text(encoding="utf-8"))
    with open(path, "w", encoding="utf-8", newline="") as stream:
        table = csv.writer(stream)
        table.writerow(("image", "width", "height", "text", "x1", "y1", "x2", "y2"))
        for image, info in list(document["imgs"].items())[:10]:
            for number in document["imgToAnns"].get(image, []):
                word = document["anns"][number]
                x, y, width, height = word["bbox"]
                corners = (x, y, x + width, y + height)
                table.writerow((info["file_name"], info["width"], info["height"], word["utf8_string"], *corners))


@pytest.fixture(scope="module")
def plain(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Yes or no, gray images, one box around the regions, every kind of intervention, the last shard first."""
    out = tmp_path_factory.mktemp("runs") / "plain"
    place.audit(
        out, "--interventions", "thinning,frame,deletion", "--box-source", "enclosing", "--image-option", "gray=true",
        "--launcher", "backwards", "--shard-images", "2",
    )  # fmt: skip
    return out


@pytest.fixture(scope="module")
def ranked(place: Place, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words ranked, boxes found by a detector."""
    out = tmp_path_factory.mktemp("runs") / "ranked"
    place.audit(out, "--scorer", "ranking", "--box-source", "middle")
    return out


def _bits(masks: pd.Series[bytes]) -> np.ndarray:
    """(rows, N) bool"""
    return np.stack([np.unpackbits(np.frombuffer(mask, np.uint8))[:N] for mask in masks]).astype(bool)


def _of(frame: pd.DataFrame, arm: str) -> pd.DataFrame:
    return frame[frame["arm"] == arm].sort_values("probe_id").reset_index(drop=True)


def test_it_adds_one_thing_of_every_kind_that_can_be_added() -> None:
    page = (REPOSITORY / "docs" / "architecture.md").read_text(encoding="utf-8")
    project = tomllib.loads((REPOSITORY / "examples" / EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))
    groups = set(re.findall(r"^\| `(sightline\.\w+)` \|", page, re.MULTILINE))
    assert len(groups) >= 11
    assert set(project["project"]["entry-points"]) == groups


def test_its_page_and_the_one_on_changes_name_every_file() -> None:
    folder, page = REPOSITORY / "examples" / EXAMPLE, REPOSITORY / "docs" / "architecture.md"
    files = {path for path in (folder / "src" / "sightline_example_plugin").glob("*.py") if path.name != "__init__.py"}
    own = re.findall(r"\[`(\w+\.py)`\]", (folder / "README.md").read_text(encoding="utf-8"))
    assert set(own) == {path.name for path in files}
    targets = re.findall(r"\]\((\.\./examples/[^)]+)\)", page.read_text(encoding="utf-8"))
    named = {(page.parent / target).resolve() for target in targets}
    assert all(path.is_file() for path in named)
    assert {path.resolve() for path in files} <= named, "each is the proof of something"


def test_nothing_in_sightline_knows_of_it() -> None:
    for path in (path for root in SOURCES for path in root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"example_plugin|box_average|gray_llava|boxes_csv|reciprocal_rank|gray_frame", text), path


COMMANDS = """
import sys
from sightline.cli import main

for words in {commands!r}:
    sys.argv = ["sightline", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print("torch was imported:", "torch" in sys.modules)
"""


def test_commands_name_it_with_what_it_says_of_itself_and_help_imports_no_torch(place: Place) -> None:
    said = run_with(place.site, COMMANDS.format(commands=["selectors box_average", "backbones gray_llava"]))
    lines = said.splitlines()
    assert lines[0] == "box_average  arguments: reach=0.1"
    for line in ("merges tokens: yes", "reads boxes: yes", "role: method", "artifact profile, gray_llava: reach=0.25"):
        assert line in lines
    assert "gray_llava  positions: compact" in lines
    assert re.search(r"^ +gray +Take the colours out of every image", said, re.MULTILINE)
    assert re.search(r"^ +crop_blind .* artifact: true", said, re.MULTILINE)
    asked = ["--help", "bench --help", "probes build --help", "probes formats"]
    said = run_with(place.site, COMMANDS.format(commands=asked), bare=True)
    assert re.search(r"materialise +Time to build a batch of prefixes", said)
    assert "alto, boxes_csv, coco_text" in re.sub(r"[│\s]+", " ", said)
    assert re.search(r"^ +--units +What x1 to y2 are in. \['pixels'\]", said, re.MULTILINE)
    assert said.endswith("torch was imported: False")
    shown = place.sightline("paper", "show", "BOXES")
    assert "Averages around boxes" in shown
    assert "--arm full --arm box_average:0.3 --out runs/qwen-confirmation" in shown
    assert "BOXES" in place.sightline("paper", "list")


PARTS = """
import torch
from PIL import Image
from sightline.arms import parse_arm
from sightline.backbones import load_backbone
from sightline.core.selection import TokenView
from sightline.errors import SightlineError
from sightline.policies import Sight

# Four cells in a row, a box over the second: it takes in its neighbours, and the fourth is out of reach.
cells = torch.tensor([[i / 4, 0.0, (i + 1) / 4, 1.0] for i in range(4)], dtype=torch.float64)
box = torch.tensor([[0.3, 0.1, 0.45, 0.9]], dtype=torch.float64)
view = TokenView(torch.zeros(4, 2), cells, ((1, 4),), torch.zeros(0, 2), box)
chosen = parse_arm("box_average:1t:reach=0.25").selector.select(view, 1)
assert chosen.anchors.tolist() == [1]
torch.testing.assert_close(chosen.mix, torch.tensor([[1.0, 1.0, 1.0, 0.0]]) / 3)
apart = parse_arm("box_average:1t:reach=0.0").selector.select(view, 2)
assert apart.anchors.tolist() == [1, 2] and torch.equal(apart.mix, torch.eye(4)[1:3])

assert parse_arm("box_average:0.3", profile="artifact", model_type="gray_llava").selector.reach == 0.25
long = parse_arm("policy:long_question:box_average:0.3/0.7:words=3,box_average.reach=0.2")
assert long.text == "policy:long_question:box_average:0.3/0.7:words=3,box_average.reach=0.2"
low, high = long.levels
for question, level in (("What is this?", low), ("What does the sign say?", high)):
    noticed = long.policy.look(Sight("p", question, cells.numpy()))
    assert long.policy.decide(long.levels, noticed, []) == level
assert parse_arm("box_average:0.3", profile="artifact", model_type="llava").selector.reach == 0.1

image = Image.open({image!r}).convert("RGB")
without = image.convert("L").convert("RGB")
known, plain = load_backbone({known!r}, device="cpu"), load_backbone({checkpoint!r}, device="cpu")
gray = load_backbone({checkpoint!r}, device="cpu", options={{"gray": True}})
tokens = lambda backbone, image: backbone.encode([backbone.preprocess(image)])[0].tokens
assert torch.equal(tokens(plain, image), tokens(known, image))
assert torch.equal(tokens(gray, image), tokens(known, without))
assert not torch.equal(tokens(gray, image), tokens(plain, image))
assert torch.equal(plain.model.lm_head.weight, known.model.lm_head.weight)
try:
    load_backbone({known!r}, device="cpu", options={{"gray": True}})
except SightlineError as error:
    print(error)
"""


def test_selector_policy_and_backbone_compute_what_their_pages_say(place: Place) -> None:
    image = next((DATA / "mini_textocr" / "train").glob("*.jpg"))
    script = PARTS.format(image=str(image), known=str(DATA / "tiny" / "llava"), checkpoint=str(place.checkpoint))
    assert run_with(place.site, script) == "llava has no image option 'gray'; it has crop_blind"


WRONG = """
from sightline.errors import SightlineError
from sightline.probes import load_regions

print(len(load_regions({table!r}).records))
try:
    load_regions({bad!r})
except SightlineError as error:
    print(error)
"""


def test_a_table_of_boxes_becomes_probes_or_its_wrong_line_is_named(place: Place, tmp_path: Path) -> None:
    place.sightline(
        "probes", "build", "--annotations", DATA / "mini_textocr" / "TextOCR_mini_val.json",
        "--images", DATA / "mini_textocr", "--limit", str(IMAGES), "--out", tmp_path / "textocr.jsonl",
    )  # fmt: skip
    ours, theirs = read_probes(place.probes), read_probes(tmp_path / "textocr.jsonl")
    assert ours.source["format"] == "boxes_csv"
    for mine, other in zip(ours.probes, theirs.probes, strict=True):
        assert (mine.image, mine.question, mine.label) == (other.image, other.question, other.label)
        assert mine.regions[0] == pytest.approx(other.regions[0], abs=1e-12)
    head, *lines = place.table.read_text(encoding="utf-8").splitlines()
    image = lines[0].split(",")[0]
    (tmp_path / "bad.csv").write_text("\n".join([head, lines[0], f"{image},480,360,far,9000,0,9100,10"]) + "\n")
    script = WRONG.format(table=str(place.table), bad=str(tmp_path / "bad.csv"))
    count, refused = run_with(place.site, script).splitlines()
    assert int(count) == len({line.split(",")[0] for line in lines})
    assert "bad.csv line 3: box [9000.0, 0.0, 9100.0, 10.0] lies far outside the image" in refused


def test_its_interventions_and_ours_meet_every_arm_that_they_apply_to(plain: Path) -> None:
    arms = set(load_run(plain).frame()["arm"])
    deletion = {arm for arm in arms if re.search(r"\+(remove|restore)_", arm)}
    grayed = {f"{arm}+gray_frame" for arm in ARMS}
    assert arms - deletion == {*ARMS, *grayed, "target:0.3+thin=2", "target:0.3+thin=4"}
    assert len(deletion) == 7
    assert all(arm.startswith("target:0.3+") for arm in deletion), "what merges has no mask to change"


def test_thinning_keeps_every_second_and_every_fourth_of_the_same_tokens(plain: Path) -> None:
    frame = load_run(plain).frame()
    whole = _bits(_of(frame, "target:0.3")["kept_mask"])
    for every, left in ((2, 87), (4, 44)):
        rows = _of(frame, f"target:0.3+thin={every}")
        assert (rows["intervention"] == f"thin={every}").all()
        assert (rows["k_tokens"] == left).all()
        for kept, before in zip(_bits(rows["kept_mask"]), whole, strict=True):
            assert np.flatnonzero(kept).tolist() == np.flatnonzero(before)[::every].tolist()


def test_a_grayed_frame_is_another_view_of_the_image(plain: Path) -> None:
    run = load_run(plain)
    rows, usual = (_of(run.frame(), arm) for arm in ("full+gray_frame", "full"))
    assert (rows["view"] == "gray_frame").all()
    assert (rows["margin"] != usual["margin"]).all()
    previews = dict(zip(run.images["image_key"].to_pylist(), run.images["preview"].to_pylist(), strict=True))
    for framed, original in zip(rows["image_key"], usual["image_key"], strict=True):
        with Image.open(io.BytesIO(previews[framed])) as gray, Image.open(io.BytesIO(previews[original])) as image:
            changed = np.abs(np.asarray(gray, float) - np.asarray(image, float)).mean(axis=2)
            edge = max(changed.shape) // 30
            height, width = changed.shape
            inner = changed[height // 5 : -(height // 5), width // 5 : -(width // 5)]
            assert np.asarray(gray, float)[:edge].std() < 3, "one gray from side to side"
            assert inner.max() < 30, "nothing is painted in the middle"
            assert changed[:edge].mean() > 5 * inner.mean()


def test_the_merging_selector_keeps_the_box_and_reports_what_flowed_in(plain: Path) -> None:
    run = load_run(plain)
    rows = _of(run.frame(), "box_average:0.3")
    kept, lineage = _bits(rows["kept_mask"]), _bits(rows["lineage_mask"])
    assert (rows["k_tokens"] == K).all()
    assert (kept.sum(axis=1) == K).all()
    assert (lineage >= kept).all()
    assert ((lineage.sum(axis=1) > K) & (lineage.sum(axis=1) < N)).all(), "within reach, and no farther"
    # One region a probe, so the box around all of them is the region: all of it that has a cell is kept in place.
    assert rows["anchor_ecr"].tolist() == _of(run.frame(), "full")["ecr"].tolist()
    assert (rows["box_source"] == "enclosing").all()
    assert run.manifest["boxes"]["rule"] == "one box around all regions"
    assert run.manifest["boxes"]["best_iou"] == pytest.approx(1.0)
    assert rows["boxes_ms"].isna().all(), "nothing was searched"


def test_the_run_says_which_architecture_and_option_it_had(plain: Path) -> None:
    run = load_run(plain)
    assert run.manifest["model_type"] == "gray_llava"
    assert run.manifest["image_options"] == {"gray": True}
    assert set(run.frame()["model_type"]) == {"gray_llava"}


def test_the_launcher_did_the_last_shard_first(plain: Path) -> None:
    for arm in (plain / "rows").iterdir():
        first, last = (arm / f"0000{shard}.parquet" for shard in range(2))
        assert last.stat().st_mtime_ns < first.stat().st_mtime_ns


def test_its_engine_answers_where_a_run_names_a_model(place: Place, tmp_path: Path) -> None:
    place.sightline(
        "run", "--model", "last_word:here", "--probes", place.probes, "--images", DATA / "mini_textocr",
        "--arm", "full", "--arm", "engine:every=2", "--out", tmp_path / "run",
    )  # fmt: skip
    run = load_run(tmp_path / "run")
    full, half = (_of(run.frame(), arm) for arm in ("full", "engine:every=2"))
    assert run.manifest["served_by"] == "engine last_word"
    assert (half["k_tokens"] == full["k_tokens"] // 2).all()
    assert (full["k_tokens"] == full["n_tokens"]).all()


def test_the_scorer_writes_its_own_columns(place: Place, ranked: Path) -> None:
    frame = load_run(ranked).frame()
    probes = {probe.id: probe for probe in read_probes(place.probes).probes}
    own = ["rank", "candidates", "word_loss"]
    assert [name for name in frame.columns if name not in (*row_schema().names, *TEXTS)] == own
    for row in frame.to_dict("records"):
        probe = probes[row["probe_id"]]
        assert row["label"] == probe.source_text
        assert row["candidates"] == (2 if probe.label == "yes" else 3)
        assert row["predicted"] in (probe.source_text, probe.target_text, "nothing")
        assert 1 <= row["rank"] <= row["candidates"]
        assert row["correct"] == (row["rank"] == 1) == (row["predicted"] == row["label"])
    assert frame["word_loss"].gt(0.0).all()
    assert frame["rank"].nunique() > 1, "a random model knows nothing, so ranks differ"


def test_who_reads_boxes_pays_for_them_and_keeps_what_was_found(ranked: Path) -> None:
    run = load_run(ranked)
    frame = run.frame()
    billed = frame.groupby("arm")["boxes_ms"]
    assert billed.count().to_dict() == {"full": 0, "target:0.3": 0, "box_average:0.3": 2 * IMAGES}
    rows = _of(frame, "box_average:0.3")
    assert rows["boxes_ms"].gt(0.0).all()
    assert run.manifest["boxes"]["rule"] == "the middle third of the width and of the height, whatever is there"
    assert run.manifest["boxes"]["boxes_per_image"] == 1.0
    stored = dict(zip(run.images["image_key"].to_pylist(), run.images["cells"].to_pylist(), strict=True))
    for kept, key in zip(_bits(rows["kept_mask"]), rows["image_key"], strict=True):
        x1, y1, x2, y2 = np.frombuffer(stored[key], "<f4").reshape(N, 4).T
        found = (x1 > 0.34) & (x2 < 0.66) & (y1 > 0.34) & (y2 < 0.66)
        assert found.sum() > 20
        assert kept[found].all()


def test_the_report_has_its_section_and_its_metric(place: Place, plain: Path, ranked: Path, tmp_path: Path) -> None:
    place.sightline("report", plain, ranked, "--out", tmp_path, "--draws", "100", "--cases", "2")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'id="ranked_words"' in page
    assert "Does the right word still come first when the prefix is pruned?" in page
    assert "this section cannot be made" not in page
    table = pd.read_csv(tmp_path / "tables" / "ranked_words.csv").set_index("arm")
    expected = load_run(ranked).frame().groupby("arm")["rank"].agg(lambda ranks: (1.0 / ranks).mean())
    assert list(table.index) == list(ARMS), "runs of other scorers have no ranks"
    assert set(table["run"]) == {"ranked"}
    for arm in ARMS:
        line = table.loc[arm]
        assert line["reciprocal_rank"] == pytest.approx(expected[arm])
        assert line["reciprocal_rank_low"] <= line["reciprocal_rank"] <= line["reciprocal_rank_high"]
    changed = pd.read_csv(tmp_path / "tables" / "interventions.csv")
    assert {"thin=2", "thin=4", "gray_frame", "remove_evidence"} <= set(changed["intervention"])


def test_a_gate_decides_by_its_metric(place: Place, ranked: Path, tmp_path: Path) -> None:
    rules = ("mean-reciprocal-rank(box_average:0.3) >= 0.1", "MRR(box_average:0.3) <= 0.1")
    asked = [part for rule in rules for part in ("--rule", rule)]
    place.sightline(
        "gate", ranked, *asked, "--draws", "100", "--least-n", "1", "--junit", tmp_path / "gate.xml", code=1
    )
    mean = (1.0 / _of(load_run(ranked).frame(), "box_average:0.3")["rank"]).mean()
    for case in ElementTree.parse(tmp_path / "gate.xml").iter("testcase"):
        failure = case.find("failure")
        assert failure is not None
        assert f"value {mean:.3f}" in str(failure.text)
        assert failure.attrib["type"] == "refused", "random weights: nothing can be read from such answers"


def test_its_benchmark_times_prefixes_full_and_pruned_and_is_reported(place: Place, tmp_path: Path) -> None:
    said = place.sightline(
        "bench", "materialise", "--shape", "tiny-llava", "--random-weights", "--device", "cpu", "--batch", "2",
        "--repeats", "3", "--warm-up", "1", "--arm", "full", "--arm", "box_average:0.25", "--share-process",
        "--out", tmp_path / "card.json",
    )  # fmt: skip
    assert "# Cost card: building shortened prefixes" in said
    (result,) = json.loads((tmp_path / "card.json").read_text(encoding="utf-8"))["results"]
    full, pruned = result["points"]
    assert list(result["inside_timer"]) == ["materialise"]
    assert (full["arm"], full["kept_tokens"]) == ("full", 64)
    assert (pruned["arm"], pruned["kept_tokens"]) == ("box_average:0.25", 16)
    assert full["length"] - pruned["length"] == 48
    for point in (full, pruned):
        assert point["batch"] == 2
        assert len(point["samples_ms"]["materialise"]) == 3
        assert min(point["samples_ms"]["materialise"]) > 0.0
    place.sightline("report", "--cost", tmp_path / "card.json", "--out", tmp_path / "report")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "Building shortened prefixes: tiny-llava, card.json" in page
    table = (tmp_path / "report" / "tables" / "realised_materialise.csv").read_text(encoding="utf-8")
    assert table.startswith("arm,execution,batch,kept_tokens,length,ms,ms_low,ms_high")
    asked = ["bench", "materialise", "--shape", "tiny-llava", "--random-weights", "--execution", "graph"]
    refused = python_with(place.site, "-m", "sightline", *asked).stderr
    assert refused == "error: unknown execution 'graph'; materialise runs eager\n"
