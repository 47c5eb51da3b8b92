from __future__ import annotations

import csv
import gzip
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from sightline.commands.controls import app
from sightline.errors import SightlineError
from sightline.probes import read_probes
from sightline.probes.fetched_images import resolve_image

PREFIX = ["--image-prefix", "mini_textocr"]


def build(*arguments: object) -> str:
    result = CliRunner().invoke(app, ["build", *map(str, arguments)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


def test_image_free_controls_in_one_file(data: Path, tmp_path: Path) -> None:
    inputs = data / "golden_e2e" / "inputs"
    build(
        "image-free",
        inputs / "probes_conf.jsonl",
        "--annotations",
        inputs / "regions.jsonl.gz",
        "--out",
        tmp_path,
        *PREFIX,
    )
    probes = read_probes(tmp_path / "image_free.jsonl").probes
    views = {"orig", "blank", "image_mismatch_seed101", "image_mismatch_seed202", "image_mismatch_seed303"}
    assert {probe.view for probe in probes} == views
    assert len(probes) == 5 * 100
    for probe in probes:
        resolve_image(data / "mini_textocr", probe.image)
    with (
        open(tmp_path / "image_mismatch_mapping.csv", newline="") as found,
        open(inputs / "image_free_conf" / "image_mismatch_mapping.csv", newline="") as expected,
    ):
        key = ("seed", "source_image_id", "control_image_id")
        ours, theirs = ([tuple(row[k] for k in key) for row in csv.DictReader(lines)] for lines in (found, expected))
    assert ours == theirs


def test_artifact_layout_writes_the_reference_files(data: Path, tmp_path: Path) -> None:
    inputs = data / "golden_e2e" / "inputs"
    build(
        "image-free", inputs / "probes_conf.jsonl", "--annotations", inputs / "regions.jsonl.gz", "--out", tmp_path,
        *PREFIX, "--layout", "artifact",
    )  # fmt: skip
    build("boxes", inputs / "probes_dev.jsonl", "--out", tmp_path, *PREFIX, "--layout", "artifact")
    for folder, name in (("image_free_conf", "image_mismatch_seed202"), ("box_robustness", "detected_like")):
        recorded = gzip.decompress((inputs / folder / f"{name}.jsonl.gz").read_bytes())
        assert (tmp_path / f"{name}.jsonl").read_bytes() == recorded


def test_occlusion_sets_hold_three_views(data: Path, tmp_path: Path) -> None:
    build("occlusion", data / "golden_e2e" / "inputs" / "probes_dev.jsonl", "--out", tmp_path, "--limit", 4, *PREFIX)
    probes = read_probes(tmp_path / "occlusion.jsonl").probes
    assert [probe.view for probe in probes] == ["orig", "evidence_masked", "random_masked"] * 4


def test_text_replacement_brings_its_images(data: Path, tmp_path: Path) -> None:
    probes = data / "golden_e2e" / "inputs" / "probes_dev.jsonl"
    arguments = ("text-replacement", probes, "--images", data / "mini_textocr", "--out", tmp_path / "out", *PREFIX)
    said = build(*arguments, "--screen", "none", "--limit", 2)
    assert "replaced     2 images" in said
    found = read_probes(tmp_path / "out" / "text_replacement.jsonl").probes
    assert len(found) == 16
    for probe in found:
        with Image.open(tmp_path / "out" / "images" / probe.image) as image:
            assert image.size == Image.open(data / "mini_textocr" / str(probe.extra["original_image"])).size
    glyphs = read_probes(tmp_path / "out" / "edit_region.jsonl").probes
    assert all(probe.kind == "edit_region" and probe.label == "yes" for probe in glyphs)

    review = tmp_path / "review.csv"
    kept = found[0].image_id
    review.write_text(f"image_id,decision\n{kept},valid_semantic_edit\n{found[-1].image_id},invalid\n")
    build(*arguments, "--screen", "none", "--decisions", review)
    again = read_probes(tmp_path / "out" / "text_replacement.jsonl").probes
    assert {probe.image_id for probe in again} == {kept}


def test_bad_arguments_are_one_line(data: Path, tmp_path: Path) -> None:
    probes = data / "golden_e2e" / "inputs" / "probes_dev.jsonl"
    with pytest.raises(SightlineError, match="unknown noise variant 'jiter'"):
        build("boxes", probes, "--out", tmp_path, "--variant", "jiter", *PREFIX)
    review = tmp_path / "review.csv"
    review.write_text("image_id,decision\na,\n")
    arguments = ("text-replacement", probes, "--images", data / "mini_textocr", "--out", tmp_path, *PREFIX)
    with pytest.raises(SightlineError, match="has no decision 'valid_semantic_edit'"):
        build(*arguments, "--decisions", review)
    review.write_text("image\na\n")
    with pytest.raises(SightlineError, match="needs columns image_id and decision"):
        build(*arguments, "--decisions", review)
    with pytest.raises(SightlineError, match="unknown text detector 'rapidcr'; did you mean 'rapidocr'"):
        build(*arguments, "--screen", "rapidcr")
