import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_probes
from tests.command_line import sightline


def output(*arguments: object) -> str:
    return sightline(*(() if arguments[0] == "verify" else ("probes",)), *arguments).output


def refusal(*arguments: object) -> str:
    with pytest.raises(SightlineError) as caught:
        output(*arguments)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def mini(data: Path) -> tuple[Path, Path]:
    return data / "mini_textocr" / "TextOCR_mini_val.json", data / "mini_textocr"


@pytest.fixture
def probes(mini: tuple[Path, Path], tmp_path: Path) -> Path:
    path = tmp_path / "probes.jsonl"
    output("build", "--annotations", mini[0], "--images", mini[1], "--out", path, "--limit", 10)
    return path


def test_build_says_what_it_did(mini: tuple[Path, Path], tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    text = output("build", "--annotations", mini[0], "--images", mini[1], "--out", path, "--limit", 52)
    found = read_probes(path)
    assert "116 images, 4 images without boxes, 2370 boxes, 47 clipped boxes, 21 dropped small" in text
    assert "104 probes (52 yes, 52 no) from 52 images; 5 images without a candidate word" in text
    assert found.digest in text
    assert found.construction["limit_images"] == 52
    assert found.source["annotations"] == "TextOCR_mini_val.json"
    assert str(mini[1]) not in path.read_text()


def test_the_documented_options_reproduce_the_artifacts_files(
    mini: tuple[Path, Path], data: Path, tmp_path: Path
) -> None:
    dev, conf, regions = tmp_path / "dev.jsonl", tmp_path / "conf.jsonl", tmp_path / "regions.jsonl"
    common = ["--annotations", mini[0], "--profile", "artifact", "--image-prefix", "mini_textocr"]
    output("regions", *common, "--out", regions)
    build = ["build", *common, "--images", mini[1]]
    output(*build, "--out", dev, "--version", "development-v1", "--limit", 52)
    output(*build, "--out", conf, "--seed", 20260720, "--shuffle-images", "--exclude", dev, "--limit", 50)
    expected = (data / "golden_e2e" / "inputs" / "sha256.txt").read_text()
    for path, name in ((regions, "regions.jsonl"), (dev, "probes_dev.jsonl"), (conf, "probes_conf.jsonl")):
        assert f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n" in expected


def test_build_from_regions_and_without_any_candidate(tmp_path: Path, mini: tuple[Path, Path]) -> None:
    words = [{"text": "Total", "box": [10, 20, 30, 10]}, {"text": "Sum", "box": [10, 60, 30, 10]}]
    row = {"image_id": "r", "image": "r.jpg", "width": 1000, "height": 1000, "words": words}
    (tmp_path / "r.jsonl").write_text(json.dumps(row))
    arguments = ["build", "--annotations", tmp_path / "r.jsonl", "--no-check-images", "--out", tmp_path / "p.jsonl"]
    assert "not declared" in refusal(*arguments)
    output(*arguments, "--boxes", "xywh", "--units", "pixels")
    found = read_probes(tmp_path / "p.jsonl")
    assert found.probes[0].regions == ((0.01, 0.02, 0.04, 0.03),)
    assert [probe.id for probe in found.probes] == ["r:hard-small-pos", "r:hard-nearmiss-neg"]
    arguments = ["build", "--annotations", mini[0], "--no-check-images", "--out", tmp_path / "none.jsonl"]
    said = refusal(*arguments, "--min-length", 60, "--max-length", 70)
    for part in ("no image", "2135 words too short", "a smaller --min-length would give one to 104 of the 116 images"):
        assert part in said
    assert not (tmp_path / "none.jsonl").exists()


def test_build_on_real_receipts(receipts: Path, tmp_path: Path) -> None:
    options = ["--images", receipts, "--out", tmp_path / "p.jsonl", "--max-area", 0.01, "--lines"]
    text = output("build", "--annotations", receipts / "receipts.json", *options)
    assert "88 probes (44 yes, 44 no) from 44 images of 500 asked for" in text
    asked = [probe.target_text for probe in read_probes(tmp_path / "p.jsonl").probes]
    assert asked == [text.strip() for text in asked]


def test_a_set_is_audited_and_split(mini: tuple[Path, Path], probes: Path, tmp_path: Path) -> None:
    text = output("audit", probes, "--regions", mini[0], "--out", tmp_path / "lexical")
    assert "Lexical audit" in text
    assert "street -> stree" in text
    assert len(list((tmp_path / "lexical").glob("*.csv"))) == 4
    text = output("split", probes, "--out", tmp_path / "sides")
    sides = [read_probes(tmp_path / "sides" / f"{name}.jsonl") for name in ("dev", "test")]
    assert sum(len(side) for side in sides) == 20
    assert not set(sides[0].image_ids) & set(sides[1].image_ids)
    assert f"{len(sides[0])} probes" in text


def test_build_checks_images(mini: tuple[Path, Path], tmp_path: Path) -> None:
    arguments = ["build", "--annotations", mini[0], "--out", tmp_path / "p.jsonl", "--limit", 2]
    assert "--images" in refusal(*arguments)
    assert "does not exist" in refusal(*arguments, "--images", tmp_path)
    assert not (tmp_path / "p.jsonl").exists()
    shutil.copytree(mini[1] / "train", tmp_path / "train")
    document = json.loads(mini[0].read_text())
    first = next(iter(document["imgs"].values()))
    first["width"] += 1
    (tmp_path / "off.json").write_text(json.dumps(document))
    arguments[2] = tmp_path / "off.json"
    assert f"its annotation says {first['width']} x" in refusal(*arguments, "--images", tmp_path)
    output(*arguments, "--images", tmp_path, "--no-check-images")


def test_exclude_takes_probe_files_and_lists(mini: tuple[Path, Path], probes: Path, tmp_path: Path) -> None:
    used = set(read_probes(probes).image_ids)
    (tmp_path / "ids.txt").write_text("\n".join(sorted(used)))
    arguments = ["build", "--annotations", mini[0], "--images", mini[1], "--limit", 10]
    output(*arguments, "--out", tmp_path / "a.jsonl", "--exclude", probes)
    output(*arguments, "--out", tmp_path / "b.jsonl", "--exclude", tmp_path / "ids.txt")
    a, b = read_probes(tmp_path / "a.jsonl"), read_probes(tmp_path / "b.jsonl")
    assert a == b
    assert not used & set(a.image_ids)
    assert a.construction["excluded_images"]["count"] == 10


def test_lock_and_verify(mini: tuple[Path, Path], probes: Path, data: Path, tmp_path: Path) -> None:
    assert "as in their digest" in output("verify", probes)
    output("lock", probes, "--images", mini[1])
    assert "10 present, 10 of them compared" in output("verify", probes, "--images", mini[1])
    probes.write_text(probes.read_text().replace('"label": "no"', '"label": "yes"', 1))
    assert "1 changed" in refusal("verify", probes)
    assert "label" in refusal("verify", probes)
    assert "does not match its digest" in refusal("show", probes)
    path = tmp_path / "conf.jsonl"
    shutil.copy(data / "golden_e2e" / "inputs" / "probes_conf.jsonl", path)
    path.chmod(0o644)
    assert "neither a lock nor a digest" in refusal("verify", path)
    output("lock", path)
    path.write_text(path.read_text().replace("Ελλάδα", "Ελλάδ", 1))
    assert "question" in refusal("verify", path)


def test_show_never_lets_control_sequences_through(tmp_path: Path) -> None:
    row: dict[str, Any] = {
        "id": "a", "image": "a.jpg", "image_id": "a", "question": "\x1b[31m[red]x[/red]", "label": "yes",
        "target_text": "", "source_text": "", "regions": [],
    }  # fmt: skip
    (tmp_path / "p.jsonl").write_text('{"sightline_probes": 1}\n' + json.dumps(row))
    text = output("show", tmp_path / "p.jsonl")
    assert "\\x1b[31m[red]x[/red]" in text
    assert "\x1b[31m" not in text
