"""What a run records of boxes, regimes and sharp evidence, from a model's arms to the images table."""

from __future__ import annotations

import io
from pathlib import Path

from PIL import Image

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.auditing.loop import PREVIEW_SIDE


def settings(data: Path, out: Path, images: Path) -> AuditConfig:
    return AuditConfig(
        model=str(data / "tiny" / "qwen3vl"),
        probes=data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
        images=images,
        image_prefix="mini_textocr",
        out=out,
        arms=["full", "target:0.3", "protected:0.3", "target:0.3:score=overlap"],
        dtype="float32",
        device="cpu",
        image_options={"max_pixels": 50176},
        limit=1,
    )


def test_a_run_says_what_each_arm_read_and_keeps_its_evidence_sharp(data: Path, tmp_path: Path) -> None:
    large = tmp_path / "images"
    for file in (data / "mini_textocr").rglob("*.jpg"):
        copy = large / file.relative_to(data / "mini_textocr")
        copy.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(file) as image:
            image.resize((1600, round(1600 * image.height / image.width))).save(copy)
    run = audit(settings(data, tmp_path / "run", large))
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
