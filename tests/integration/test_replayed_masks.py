"""Rows of replayed masks belong to the file they were made from."""

import gzip
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline import Selection, audit, read_probes
from sightline.auditing import mask_export
from sightline.selectors.masks import Masks
from sightline.store.folder import RunFolder
from sightline.store.shard_files import unpack_cells
from tests.command_line import sightline
from tests.integration.conftest import MODELS, refused_with


def write(path: Path, probes: Path, kept: list[int]) -> None:
    lines = [json.dumps({"sample_id": probe.id, "kept_indices": kept}) for probe in read_probes(probes).probes]
    path.write_text("\n".join(lines) + "\n")


def test_rows_of_a_replay_belong_to_the_content_of_its_file(config: Any, mini_probes: Path, tmp_path: Path) -> None:
    masks = tmp_path / "masks.jsonl"
    arm = f"masks:file={masks}"

    def settings(*arms: str) -> Any:
        return config("llava", arms=list(arms), limit=2, shard_images=1)

    write(masks, mini_probes, [0, 100_000])
    refused_with(lambda: audit(settings(arm)), "lists token 100000")
    write(masks, mini_probes, [0, 3])  # mended, while no row was made from the old one
    run = audit(settings(arm))
    first = run.frame()
    assert first["k_tokens"].tolist() == [2] * len(first)
    assert first["budget"].astype(float).tolist() == first["keep"].tolist(), "what was kept is the budget"
    assert set(first["keep"]) == {2 / first["n_tokens"].iloc[0]}
    assert first["keep_requested"].isna().all()
    assert list(run.manifest["inputs"]) == [arm]
    write(masks, mini_probes, [5])
    refused_with(lambda: audit(settings(arm)), f"holds rows of {arm}", "made from other content of its file")
    RunFolder(run.path).rows_file(arm, 1).unlink()
    refused_with(lambda: audit(settings("full")), "made from other content")  # an unfinished arm of an earlier command
    write(masks, mini_probes, [0, 3])
    again = audit(settings(arm, "full")).frame()
    assert again[again["arm"] == arm]["kept_mask"].tolist() == first["kept_mask"].tolist()
    masks.unlink()
    later = audit(settings("full", "center:0.3")).frame()
    assert set(later["arm"]) == {arm, "full", "center:0.3"}, "a finished arm needs its file no more"


@pytest.mark.usefixtures("no_weights")
def test_a_probe_without_a_line_is_named_before_a_model_is_loaded(
    config: Any, mini_probes: Path, tmp_path: Path
) -> None:
    masks = tmp_path / "masks.jsonl"
    write(masks, mini_probes, [0, 3])
    masks.write_text(masks.read_text().splitlines()[0] + "\n")
    settings = config("llava", arms=[f"masks:file={masks}"], limit=2)
    refused_with(lambda: audit(settings), "has no mask for probe", "(and 2 more)")


def export(run: Any, arm: str, out: Path, *options: object) -> Any:
    return sightline("masks", "export", run.path, "--arm", arm, "--out", out, *options)


def answers(run: Any, arm: str) -> list[Any]:
    frame = run.frame()
    columns = ["probe_id", "k_tokens", "ecr", "loss_yes", "loss_no", "kept_mask", "lineage_mask"]
    return [tuple(row) for row in frame[frame["arm"] == arm][columns].itertuples(index=False)]


def test_a_line_says_where_it_was_made_and_index_0_is_the_first_token_of_the_first_block(
    config: Any, tmp_path: Path
) -> None:
    run = audit(config("internvl", arms=["full"], limit=1, image_options={"min_tiles": 2, "max_tiles": 4}))
    file = tmp_path / "m.jsonl"
    export(run, "full", file)
    line = json.loads(file.read_text().splitlines()[0])
    row = run.frame().iloc[0]
    assert line["n_tokens"] == row["n_tokens"] == sum(rows * columns for rows, columns in line["layout"])
    assert len(line["layout"]) > 1, "tiles and a thumbnail"
    cells = unpack_cells(run.images.to_pylist()[0]["cells"])
    (rows, columns), *_ = line["layout"]
    first_block = cells[: rows * columns]
    assert (cells[0][:2] == first_block[:, :2].min(axis=0)).all()
    assert cells[1][0] > cells[0][0], "to the right first"
    assert cells[columns][1] > cells[0][1], "then the next row"


def test_masks_of_another_model_are_refused_with_both_counts(config: Any, tmp_path: Path) -> None:
    run = audit(config("qwen3vl", arms=["center:0.3"], limit=1))
    file = tmp_path / "m.jsonl"
    export(run, "center:0.3", file)
    made = int(run.frame()["n_tokens"].iloc[0])
    other = config("llava", arms=[f"masks:file={file}"], limit=1, out=tmp_path / "other")
    refused_with(lambda: audit(other), f"{file}:1 was made for {made} tokens, this model makes ")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        line["layout"] = [[1, made]]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    third = config("qwen3vl", arms=[f"masks:file={file}"], limit=1, out=tmp_path / "third")
    refused_with(lambda: audit(third), f"was made for a layout of 1 x {made}, this model makes ")


@pytest.mark.parametrize(("model", "arm"), [
    *((model, "target:0.3") for model in MODELS),
    ("llava", "visionzip:0.3"), ("llava", "visionzip:0.3:order=rank"), ("llava", "prumerge:0.3"),
    ("llava", "tome:0.5"), ("qwen3vl", "tome:0.5"), ("qwen3vl", "visionzip_qwen:0.3"),
])  # fmt: skip
def test_exported_masks_and_merges_computed_again_replay_bit_for_bit(
    config: Any, tmp_path: Path, model: str, arm: str
) -> None:
    settings = config(model, arms=[arm], limit=2)
    run = audit(settings)
    file = tmp_path / "masks.jsonl.gz"
    if arm.startswith("target"):
        export(run, arm, file)
    else:
        refused_with(partial(export, run, arm, file), "--model and --images")
        export(run, arm, file, "--model", settings.model, "--images", settings.images)
        with gzip.open(file, "rt") as lines:
            assert "kept_indices" not in json.loads(next(lines))
    replay = f"masks:file={file}"
    again = audit(config(model, arms=[replay], limit=2, out=tmp_path / "again"))
    assert answers(again, replay) == answers(run, arm)


def test_what_cannot_be_exported_is_said(
    config: Any, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = config("llava", arms=["tome:0.5", "fastv:0.5"], limit=1)
    run = audit(settings)
    out, words = tmp_path / "m", ("--model", data / "tiny" / "qwen3vl", "--images", data)
    other = "holds a run of llava (llava), this command has qwen3vl (qwen3_vl)"
    refused_with(partial(export, run, "tome:0.5", out, *words), other)
    plain = mask_export._selections

    def moved(*arguments: Any) -> list[Selection]:
        return [replace(one, anchors=torch.arange(len(one.anchors))) for one in plain(*arguments)]

    monkeypatch.setattr(mask_export, "_selections", moved)
    words = ("--model", settings.model, "--images", settings.images)
    refused_with(partial(export, run, "tome:0.5", out, *words), "chooses other tokens now")
    assert not out.exists()
    refused_with(partial(export, run, "fastv:0.5", out), "prunes between language layers")
    refused_with(partial(export, run, "grid:0.3", out), "has no arm 'grid:0.3'; it has tome:0.5, fastv:0.5")


@pytest.mark.parametrize(("content", "words"), [
    (b"\x1f\x8b\x08damaged", "cannot read"),
    (b"[" * 50_000, "not JSON lines"),
    (b'{"id": "a", "kept_indices": [1], "n_tokens": "9"}', "'n_tokens' must be a positive whole number"),
    (b'{"id": "a", "kept_indices": [1], "layout": [3, 3]}', "'layout' must be a list of [rows, columns]"),
    (b'{"id": "a", "groups": [[3, [3, 4], [1.0]]]}', "a group is [anchor, [source, ...], [weight, ...]]"),
    (b'{"id": "a", "groups": [[3, [3, 3], [1.0, 1.0]]]}', "a group is"),
    (b'{"id": "a", "groups": [[3, [3, 4], [NaN, 1]]]}', "a group is"),
    (b'{"id": "a", "groups": {"a": 1}}', "a group is"),
    (b'{"id": "a", "groups": [[3, [3, 4], [0.5, 0.5]]], "merge_at": "here"}', "'merge_at' must be"),
])  # fmt: skip
def test_an_odd_mask_file_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / ("m.jsonl.gz" if content.startswith(b"\x1f") else "m.jsonl")
    file.write_bytes(content)
    refused_with(lambda: Masks(str(file)).check_probes(["a"]), words)


def test_paths_that_no_file_can_have_and_groups_beyond_the_image_are_one_line(tmp_path: Path) -> None:
    for name in ("a\0b.jsonl", "x" * 5000, "."):
        refused_with(Masks(name).digest)
        refused_with(partial(Masks(name).check_probes, ["a"]))
    file = tmp_path / "m.jsonl"
    file.write_text('{"id": "a", "groups": [[3, [3, 4], [0.5, 0.5]]]}\n')
    assert Masks(str(file)).indices("a", 5) == (3,)
    assert Masks(str(file)).indices("a", 4) == (3,), "source N is the class token"
    refused_with(lambda: Masks(str(file)).indices("a", 3), "the masks were made for another model")
