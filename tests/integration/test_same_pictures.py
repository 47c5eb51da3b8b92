"""Copies of a picture, under any name and in any format without loss, count as one image from run to verdict."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from PIL import Image

from sightline.auditing.audit import audit
from sightline.commands.run import print_summary
from sightline.errors import SightlineError
from sightline.probes import read_probes, write_probes
from sightline.rows.source import read_source
from sightline.statistics.summaries import arm_summary

IMAGES = 6


def copied(mini_probes: Path, data: Path, folder: Path, names: tuple[str, ...]) -> dict[str, Any]:
    """Probes about the first images, once under each name: as they are, or as PNGs of the same pixels."""
    images, probes = folder / "images", []
    for probe in read_probes(mini_probes).probes[: 2 * IMAGES]:
        source = data / "mini_textocr" / probe.image
        for name in names:
            file = Path(probe.image).with_stem(f"{Path(probe.image).stem}{name}")
            file = file.with_suffix(".png") if name == "-png" else file
            (images / file).parent.mkdir(parents=True, exist_ok=True)
            if name == "-png":
                Image.open(source).convert("RGB").save(images / file)
            else:
                shutil.copy(source, images / file)
            asked = replace(probe, id=f"{probe.id}{name}", image_id=f"{probe.image_id}{name}", image=str(file))
            probes.append(asked)
    write_probes(folder / "probes.jsonl", sorted(probes, key=lambda probe: probe.image))
    return {"probes": folder / "probes.jsonl", "images": images, "out": folder / "run", "limit": None}


def test_copies_under_three_names_give_the_intervals_of_the_images(
    config: Any, mini_probes: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    once, thrice = (
        audit(config("qwen3vl", arms=["full", "target:0.3"], **copied(mini_probes, data, tmp_path / name, names)))
        for name, names in (("once", ("",)), ("thrice", ("", "-copy", "-png")))
    )
    left, right = (arm_summary(run.frame(), metrics=["accuracy", "hfpr"], draws=500) for run in (once, thrice))
    assert right["n_images"].tolist() == left["n_images"].tolist() == [IMAGES] * 2
    bounds = [f"{name}_{end}" for name in ("accuracy", "hfpr") for end in ("low", "high")]
    pd.testing.assert_frame_equal(left[bounds], right[bounds])
    print_summary(thrice)
    said = " ".join(capsys.readouterr().err.split())
    assert f"note: {2 * IMAGES} images have the same pixels as another (first: " in said
    assert not once.joined


def test_a_development_run_of_the_same_files_under_other_ids_is_refused_by_name(
    config: Any, mini_probes: Path, data: Path, tmp_path: Path
) -> None:
    runs = [
        audit(config("qwen3vl", arms=["full"], **copied(mini_probes, data, tmp_path / name.strip("-"), (name,)))).path
        for name in ("-here", "-there")
    ]
    with pytest.raises(SightlineError, match=rf"share {IMAGES} images \(first: .*-there, which is .*-here there\)"):
        read_source(runs[:1], developments=runs[1:], threshold="own-dev")
