"""Audits as users run them: images encoded and decoded once, rows of the probe and arm alone, and what is recorded."""

import io
import json
import re
import shlex
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import sightline
from sightline import audit, load_run, read_probes
from sightline.answering.scorers.yes_no import YesNo
from sightline.auditing import worker
from sightline.auditing.loop import PREVIEW_SIDE
from sightline.backbones.qwen3_vl import Qwen3VL
from sightline.commands.run import print_summary
from sightline.core.row import row_schema
from sightline.probes import images, write_probes
from sightline.report.sections.contract import contract_table
from sightline.rows.picture import TEXTS
from sightline.rows.source import read_source
from sightline.statistics.summaries import arm_points, arm_summary
from sightline.store.shard_files import unpack_cells, unpack_mask
from tests import command_line
from tests.conftest import REPOSITORY
from tests.integration.conftest import MODELS, TEN_ARMS, facts


@pytest.mark.parametrize("model", MODELS)
def test_rows_carry_the_reporting_contract_and_an_image_is_encoded_once(
    config: Any, encoded: list[int], model: str
) -> None:
    run = audit(config(model, arms=TEN_ARMS, shard_images=2))
    assert sum(encoded) == 3, "for all probes and arms"
    audit(config(model, arms=TEN_ARMS, shard_images=2))
    assert sum(encoded) == 3, "a finished run encodes nothing"
    frame = run.frame()
    assert list(frame.columns) == [*row_schema(YesNo.columns).names, *TEXTS]
    assert len(frame) == 10 * 6, "three images, two probes each, ten arms"
    assert run.missing == 0
    assert sightline.load_run(run.path).rows.equals(run.rows), "by its public name"
    assert set(frame["arm"]) == set(TEN_ARMS)
    assert frame["weight_digest"].str.startswith("sha256:").all()
    assert (frame["keep"] == frame["k_tokens"] / frame["n_tokens"]).all()
    assert (frame["margin"] == frame["loss_no"] - frame["loss_yes"]).all()
    assert ((frame["margin"] >= 0) == (frame["predicted"] == "yes")).all()
    assert frame["ecr"].between(0, 1).all()
    pruned = frame[frame["arm"] == "target:0.3"]
    assert (pruned["sequence_full"] - pruned["sequence_pruned"] == pruned["n_tokens"] - pruned["k_tokens"]).all()
    row: Any
    for row in pruned.itertuples():
        assert unpack_mask(row.kept_mask, row.n_tokens).sum() == row.k_tokens
    layered = frame[frame["arm"] == "fastv:0.5"].iloc[0]
    assert layered["k_layers"][0] == layered["n_tokens"]
    assert layered["k_layers"][-1] == layered["k_tokens"]
    assert layered["keep_layer_mean"] > layered["keep"]
    images = run.images.to_pylist()
    assert len(images) == 3
    assert all(
        len(unpack_cells(image["cells"])) == sum(r * c for r, c in json.loads(image["layout"])) for image in images
    )
    assert len(run.probes) == 6
    copied = read_probes(run.path / "probes.jsonl")
    assert [probe.id for probe in copied.probes] == [record["id"] for record in run.probes]


BESIDE = {
    "qwen3vl": [
        "full", "resize:0.3", "target:0.3", "resize:20t", "random:0.3", "protected:0.4",
        "policy:answer_stability:target_grid:0.3/0.5/0.7",
        "policy:evidence_saturation:target_grid:0.3/0.5/0.7:mass=0.8",
    ],
    "llava": ["full", "target:0.3", "random:0.3", "protected:0.4"],
    "internvl": ["full", "target:0.3", "random:0.3", "protected:0.4"],
}  # fmt: skip


@pytest.mark.parametrize("model", BESIDE)
def test_rows_do_not_change_with_arms_beside_them_batch_size_or_sharding(
    config: Any, model: str, tmp_path: Path
) -> None:
    arms = BESIDE[model]
    first = facts(audit(config(model, arms=arms, out=tmp_path / "a")).frame())
    before = audit(config(model, arms=arms[:1:-1]))
    kept = {path: path.stat().st_mtime_ns for path in before.path.glob("rows/*/*.parquet")}
    amended = audit(config(model, arms=arms[:2]))
    assert amended.arms[-2:] == arms[:2]
    assert {path: path.stat().st_mtime_ns for path in kept} == kept, "an amendment leaves the rows alone"
    pd.testing.assert_frame_equal(facts(amended.frame()), first)

    alone = facts(audit(config(model, arms=arms, out=tmp_path / "c", batch_tokens=1, shard_images=1)).frame())
    assert first["conditions"].iloc[0] != alone["conditions"].iloc[0], "rows say which batches they come from"
    losses = ["loss_yes", "loss_no", "margin"]
    exact = [name for name in first.columns if name not in (*losses, "entropy", "conditions", "decided_on")]
    pd.testing.assert_frame_equal(first[exact], alone[exact])
    np.testing.assert_allclose(first[losses], alone[losses], atol=1e-5)
    batched = facts(audit(config(model, arms=arms, out=tmp_path / "d", batch_images=4)).frame())
    assert batched["kept_mask"].tolist() == first["kept_mask"].tolist()
    np.testing.assert_allclose(batched["margin"], first["margin"], atol=1e-4)


def test_both_position_policies_on_every_architecture(config: Any, tmp_path: Path) -> None:
    for model in MODELS:
        margins = {}
        for policy in ("preserve", "compact"):
            run = audit(config(model, arms=["full", "grid:0.3"], positions=policy, out=tmp_path / model / policy))
            frame = run.frame()
            assert set(frame["positions"]) == {policy}
            margins[policy] = frame.set_index(["arm", "probe_id"])["margin"]
        full = [margins[policy]["full"] for policy in margins]
        np.testing.assert_allclose(full[0], full[1], atol=1e-6)
        assert not np.allclose(margins["preserve"]["grid:0.3"], margins["compact"]["grid:0.3"], atol=1e-6), model


def test_an_image_is_decoded_and_its_signals_are_computed_once(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, computed = Counter[str](), Counter[str]()
    decode, signal = images.open_image_file, Qwen3VL.vision_signal

    def decoding(file: Any, called: Any, **how: Any) -> Any:
        opened[file.name] += 1
        return decode(file, called, **how)

    def computing(self: Qwen3VL, name: str, encoded: Any) -> Any:
        computed[name] += 1
        return signal(self, name, encoded)

    monkeypatch.setattr(worker, "open_image_file", decoding)
    monkeypatch.setattr(Qwen3VL, "vision_signal", computing)
    run = audit(config("qwen3vl", arms=["visionzip_qwen:0.4", "visionzip_qwen:0.3", "full"], shard_images=2))
    assert set(opened) == {Path(name).name for name in run.images.column("image").to_pylist()}
    assert set(opened.values()) == {1}, "for the tower and for the report"
    assert set(computed.values()) == {3}
    rows = run.frame()
    assert len(rows) == 18, "two probes on each of three images, three arms"
    pruned = rows["selector"] == "visionzip_qwen"
    billed = rows[pruned].groupby("image_id")["signal_ms"].nunique()
    assert set(billed) == {1}, "all rows of an image are billed what computing its signals took"
    assert (rows.loc[pruned, "signal_ms"] > 0).all()
    assert (rows.loc[~pruned, "signal_ms"] == 0).all()
    audit(config("qwen3vl", arms=["random:0.3"], shard_images=2))
    assert set(opened.values()) == {2}, "an amendment decodes again, and once"


def test_rows_say_in_which_published_form_a_method_ran(config: Any, tmp_path: Path) -> None:
    """Qwen3-VL has no class token: VisionZip runs there as its authors published it for such a model."""
    run = audit(config("qwen3vl", arms=["visionzip:0.3", "visionzip_qwen:0.3", "holov:0.3:alpha=0.1"], limit=1))
    rows = run.frame()
    named = {arm: own for arm, own in rows.groupby("selector") if arm in ("visionzip", "visionzip_qwen", "holov")}
    assert named["visionzip"]["form"].str.startswith("visionzip_qwen: received attention").all()
    assert named["visionzip_qwen"]["form"].isna().all(), "its only form"
    for column in ("kept_mask", "lineage_mask", "loss_yes"):
        assert list(named["visionzip"][column]) == list(named["visionzip_qwen"][column])
    (line,) = (
        line for line in contract_table(read_source([run.path])).frame.to_dict("records") if "holov" in line["arm"]
    )
    assert line["arguments"].startswith("crops=0, alpha=0.1; form: the attention a token receives"), "the report too"
    assert set(named["holov"]["arguments"]) == {'{"crops": 0, "alpha": 0.1}'}, "those of the form, and what was given"
    rows = audit(config("llava", arms=["visionzip:0.3"], limit=1, out=tmp_path / "llava")).frame()
    assert rows["form"].isna().all()


def test_a_run_says_what_each_arm_read_and_keeps_its_evidence_sharp(config: Any, data: Path, tmp_path: Path) -> None:
    large = tmp_path / "images"
    for file in (data / "mini_textocr").rglob("*.jpg"):
        copy = large / file.relative_to(data / "mini_textocr")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as image:
            image.resize((1600, round(1600 * image.height / image.width))).save(copy)
    arms = ["full", "target:0.3", "protected:0.3", "target:0.3:score=overlap"]
    run = audit(config("qwen3vl", images=large, arms=arms, limit=1, matched_controls=True))
    rows = run.frame().drop_duplicates("arm").set_index("arm")
    assert rows["regime"].to_dict() == {
        "full": "full",
        "target:0.3": "box-free method",
        "protected:0.3": "oracle",
        "target:0.3:score=overlap": "oracle",
        "random:0.3": "box-free control",
        "grid:0.3": "box-free control",
    }
    assert set(rows.index[rows["box_source"] == "annotation"]) == {"protected:0.3", "target:0.3:score=overlap"}
    assert set(rows["box_source"]) == {"annotation", "none"}

    (record,) = run.images.to_pylist()
    regions = {tuple(box) for probe in run.probes for box in probe["regions"]}
    assert len(record["details"]) == len(record["detail_boxes"]) == len(regions)
    shown = Image.open(io.BytesIO(record["preview"]))
    assert max(shown.size) == PREVIEW_SIDE
    left, _, right, _ = record["detail_boxes"][0]
    sharp = Image.open(io.BytesIO(record["details"][0])).width / (right - left)
    assert sharp > 1.4 * shown.width, "pixels across the image, if all of it were as sharp"


IMAGES = 6


def test_copies_under_three_names_give_the_intervals_of_the_images(
    config: Any, mini_probes: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As they are, and as PNGs of the same pixels."""
    folder, probes = tmp_path / "images", []
    for probe in read_probes(mini_probes).probes[: 2 * IMAGES]:
        source = data / "mini_textocr" / probe.image
        for name, suffix in (("", ".jpg"), ("-copy", ".jpg"), ("-png", ".png")):
            file = Path(probe.image).with_name(f"{source.stem}{name}{suffix}")
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            if suffix == ".jpg":
                shutil.copy(source, folder / file)
            else:
                Image.open(source).convert("RGB").save(folder / file)
            asked = replace(probe, id=f"{probe.id}{name}", image_id=f"{probe.image_id}{name}", image=str(file))
            probes.append(asked)
    write_probes(tmp_path / "probes.jsonl", sorted(probes, key=lambda probe: probe.image))
    places = {"probes": tmp_path / "probes.jsonl", "images": folder, "limit": None}
    run = audit(config("qwen3vl", arms=["full", "target:0.3"], **places))
    thrice = run.frame()
    once = thrice[~thrice["image_id"].str.contains("-copy|-png")]
    left, right = (arm_summary(frame, metrics=["accuracy", "hfpr"], draws=500) for frame in (once, thrice))
    assert right["n_images"].tolist() == left["n_images"].tolist() == [IMAGES] * 2
    bounds = [f"{name}_{end}" for name in ("accuracy", "hfpr") for end in ("low", "high")]
    pd.testing.assert_frame_equal(left[bounds], right[bounds])
    print_summary(run)
    said = " ".join(capsys.readouterr().err.split())
    assert f"note: {2 * IMAGES} images have the same pixels as another (first: " in said


TOKEN_PIXELS = {"qwen3vl": 32 * 32, "llava": 14 * 14, "internvl": 56 * 56}
"""Patches of 16, 14 and 28 pixels, four of them in a token but for LLaVA."""
MERGES = {"qwen3vl": "tome:0.3", "llava": "visionzip:0.3", "internvl": "tome:0.3:metric=tokens"}


@pytest.mark.parametrize("model", TOKEN_PIXELS)
def test_rows_say_what_is_visible_and_how_large_characters_arrive(config: Any, model: str) -> None:
    run = audit(config(model, arms=["full", "random:0.3", MERGES[model]], limit=12 if model == "llava" else 3))
    frame = run.frame()
    full = frame[frame["arm"] == "full"]
    assert (full["ecr"] == full["visible"]).all(), "to the last bit"
    assert arm_points(full, ["relative_pos_ecr"])["relative_pos_ecr"] == 1.0
    assert frame.groupby("probe_id")["visible"].nunique().eq(1).all(), "whatever the arm"
    assert (frame["visible"] < 1).any() == (model == "llava"), "LLaVA alone crops"

    probes = {probe["id"]: probe for probe in run.probes}
    images = {record["image_key"]: record for record in run.images.to_pylist()}
    for row in full.to_dict("records"):
        record = images[row["image_key"]]
        sides = [
            ((r[2] - r[0]) * record["width"], (r[3] - r[1]) * record["height"])
            for r in probes[row["probe_id"]]["regions"]
        ]
        cells = np.frombuffer(record["cells"], "<f4").reshape(-1, 4).astype(float)
        area = np.prod(cells[:, 2:] - cells[:, :2], axis=1).min() * record["width"] * record["height"]
        scale = min(1.0, TOKEN_PIXELS[model] / area) ** 0.5
        expected = min(min(side) for side in sides) * scale * row["visible"] ** 0.5
        assert row["legibility"] == pytest.approx(expected, rel=1e-4)

    by_probe = frame.pivot(index="probe_id", columns="arm", values="legibility")
    for arm in ("random:0.3", MERGES[model]):
        assert (by_probe[arm] <= by_probe["full"]).all()
        assert by_probe[arm].mean() < by_probe["full"].mean()
    merged = frame[frame["arm"] == MERGES[model]]
    if (merged["ecr"] == merged["visible"]).all():  # a merge that covers everything and is less legible for it
        assert arm_points(merged, ["relative_pos_ecr"])["relative_pos_ecr"] == 1.0


def test_the_documented_config_file_runs_as_printed(
    data: Path, mini_probes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (REPOSITORY / "docs" / "runs.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    line = re.findall(r"^    sightline (run --config .*)$", page, re.MULTILINE)[0]
    for name, target in {
        "checkpoints/Qwen3-VL-8B-Instruct": data / "tiny" / "qwen3vl",
        "probes/textocr.jsonl": mini_probes,
        "data/textocr": data / "mini_textocr",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).symlink_to(target)
    (tmp_path / "run.yaml").write_text(block, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    command_line.sightline(*shlex.split(line))
    run = load_run("runs/quick")
    assert run.unfinished == ""
    assert run.manifest["image_options"]["max_pixels"] == 802816
    assert {"full+occlude_evidence", "full+occlude_random"} <= set(run.arms), "both interventions of the file"
    assert {"full", "target:0.3", "protected:0.4", "target:0.3+remove_evidence"} <= set(run.arms)
