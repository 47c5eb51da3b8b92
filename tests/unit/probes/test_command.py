"""``sightline probes`` and ``sightline verify``: what they write, what they say of it, and what they refuse."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from sightline.errors import SightlineError
from sightline.probes import read_probes
from tests.command_line import sightline
from tests.unit.probes.formats.pages import paint


def output(*arguments: object) -> str:
    return sightline(*(() if arguments[0] == "verify" else ("probes",)), *arguments).output


def refusal(*arguments: object) -> str:
    with pytest.raises(SightlineError) as caught:
        output(*arguments)
    return str(caught.value)


@pytest.fixture(scope="module")
def mini(data: Path) -> tuple[Path, Path]:
    return data / "mini_textocr" / "TextOCR_mini_val.json", data / "mini_textocr"


@pytest.fixture
def probes(mini: tuple[Path, Path], tmp_path: Path) -> Path:
    path = tmp_path / "probes.jsonl"
    output("build", "--annotations", mini[0], "--images", mini[1], "--out", path, "--limit", 10)
    return path


@pytest.fixture
def regions(tmp_path: Path) -> Path:
    """One image; its boxes are declared nowhere."""
    words = [{"text": "Total", "box": [10, 20, 30, 10]}, {"text": "Sum", "box": [10, 60, 30, 10]}]
    row = {"image_id": "r", "image": "r.jpg", "width": 1000, "height": 1000, "words": words}
    (tmp_path / "r.jsonl").write_text(json.dumps(row))
    return tmp_path / "r.jsonl"


def test_build_says_what_it_did_and_why_there_is_nothing_to_ask(mini: tuple[Path, Path], tmp_path: Path) -> None:
    path, build = tmp_path / "p.jsonl", ["build", "--annotations", mini[0], "--images", mini[1], "--out"]
    text = output(*build, path, "--limit", 52)
    found = read_probes(path)
    assert "116 images, 4 images without boxes, 2370 boxes, 47 clipped boxes, 21 dropped small" in text
    assert "104 probes (52 yes, 52 no) from 52 images; 5 images without a candidate word" in text
    assert found.digest in text
    assert (found.construction["limit_images"], found.source["annotations"]) == (52, "TextOCR_mini_val.json")
    assert str(mini[1]) not in path.read_text()
    said = refusal(*build, tmp_path / "none.jsonl", "--min-length", 60, "--max-length", 70)
    for part in ("no image", "2135 words too short", "a smaller --min-length would give one to 104 of the 116 images"):
        assert part in said
    assert not (tmp_path / "none.jsonl").exists()


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


def test_build_on_real_receipts(receipts: Path, tmp_path: Path) -> None:
    options = ["--images", receipts, "--out", tmp_path / "p.jsonl", "--max-area", 0.01, "--lines"]
    text = output("build", "--annotations", receipts / "receipts.json", *options)
    assert "88 probes (44 yes, 44 no) from 44 images of 500 asked for" in text
    asked = [probe.target_text for probe in read_probes(tmp_path / "p.jsonl").probes]
    assert asked == [text.strip() for text in asked]


def test_a_set_is_audited(mini: tuple[Path, Path], probes: Path, tmp_path: Path) -> None:
    text = output("audit", probes, "--regions", mini[0], "--out", tmp_path / "lexical")
    assert "Lexical audit" in text
    assert "street -> stree" in text
    assert len(list((tmp_path / "lexical").glob("*.csv"))) == 4


def test_a_set_is_split(probes: Path, tmp_path: Path) -> None:
    text = output("split", probes, "--out", tmp_path / "sides")
    dev, test = (read_probes(tmp_path / "sides" / f"{name}.jsonl") for name in ("dev", "test"))
    assert len(dev) + len(test) == 20
    assert not set(dev.image_ids) & set(test.image_ids)
    assert f"{len(dev)} probes" in text


def test_a_set_may_leave_out_the_images_of_another(mini: tuple[Path, Path], probes: Path, tmp_path: Path) -> None:
    used = set(read_probes(probes).image_ids)
    (tmp_path / "ids.txt").write_text("\n".join(sorted(used)))
    found = []
    for exclude in (probes, tmp_path / "ids.txt"):
        build = ["build", "--annotations", mini[0], "--images", mini[1], "--limit", 10, "--out", tmp_path / "a.jsonl"]
        output(*build, "--exclude", exclude)
        found.append(read_probes(tmp_path / "a.jsonl"))
    assert found[0] == found[1]
    assert not used & set(found[0].image_ids)
    assert found[0].construction["excluded_images"]["count"] == 10


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


def test_lock_and_verify(mini: tuple[Path, Path], probes: Path, data: Path, tmp_path: Path) -> None:
    assert "as in their digest" in output("verify", probes)
    output("lock", probes, "--images", mini[1])
    assert "10 present, 10 of them compared" in output("verify", probes, "--images", mini[1])
    probes.write_text(probes.read_text().replace('"label": "no"', '"label": "yes"', 1))
    assert re.search("1 changed .*label", refusal("verify", probes))
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


# The options that commands about annotations share, and what ``build`` says about images without a word to ask for.


GIVEN = ("--format", "regions", "--format-option", "order=xywh", "--format-option", "units=pixels")


def test_every_command_about_annotations_takes_formats_and_options(regions: Path, tmp_path: Path) -> None:
    probes, again = tmp_path / "p.jsonl", tmp_path / "again.jsonl"
    build = ["build", "--annotations", regions, "--no-check-images", "--out", probes]
    assert "not declared" in refusal(*build)
    output(*build, *GIVEN)
    found = read_probes(probes)
    assert found.source["order"] == "xywh"
    assert found.probes[0].regions == ((0.01, 0.02, 0.04, 0.03),)
    assert [probe.id for probe in found.probes] == ["r:hard-small-pos", "r:hard-nearmiss-neg"]
    output(*build, "--boxes", "xywh", "--units", "pixels")
    assert read_probes(probes) == found
    output("regions", "--annotations", regions, "--out", again, *GIVEN)
    assert again.read_text().count('"Total"') == 1
    assert "negatives" in output("audit", probes, "--regions", regions, *GIVEN)
    (tmp_path / "ids.txt").write_text("r\n")
    said = refusal(*build, *GIVEN, "--exclude", tmp_path / "ids.txt")
    assert said.endswith("gave a probe (0 without a candidate word, 1 excluded)")


def test_a_wrong_format_or_option_is_refused_in_a_line(regions: Path, tmp_path: Path) -> None:
    arguments = ["regions", "--annotations", regions, "--out", tmp_path / "none.jsonl"]
    for option, says in (
        (("--format-option", "order"), "no value; write order=VALUE"),
        (("--min-annotation-area", 1),
         "format regions has no option --min-annotation-area; formats that have it: coco_text, textocr"),
        (("--format-option", "images=x"), "format regions has no option 'images'; known: order"),
        (("--format", "region"), "did you mean 'regions'"),
    ):  # fmt: skip
        assert says in refusal(*arguments, *option)
    assert not (tmp_path / "none.jsonl").exists()


def test_a_folder_without_a_file_of_a_format_is_refused_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    arguments = ["regions", "--annotations", tmp_path / "empty", "--out", tmp_path / "none.jsonl"]
    assert "no file in this folder is in a format of which folders are read (alto, funsd," in refusal(*arguments)
    assert refusal(*arguments, "--format", "textocr").endswith("is a folder; format textocr reads single files")
    assert refusal(*arguments, "--format", "alto").endswith("holds no alto file (*.xml, *.alto)")


def test_help_and_list_name_the_formats_and_their_options() -> None:
    for command in ("build", "regions", "audit"):
        said = re.sub(r"[│\s]+", " ", output(command, "--help"))  # without the frame and line breaks of its table
        assert "hocr, ms_read, ocrbench, page_xml, qa, regions, textocr, textvqa" in said
    text = output("formats")
    assert "textocr      one JSON document" in text
    for flag in ("--boxes", "--units", "--pairing", "--min-annotation-area", "--format-option small_boxes"):
        assert flag in text


def test_build_says_why_words_were_no_candidates_and_which_option_would_help(tmp_path: Path) -> None:
    small, large = [0.1, 0.1, 0.15, 0.11], [0.1, 0.2, 0.5, 0.4]
    pages = [[("Total", small)], [("Total", large), ("Sum", large)], [("Amount", large), ("Change", large)]]
    rows = [{"sightline_regions": 1, "boxes": "xyxy", "units": "normalised"}]
    for number, words in enumerate(pages):
        rows.append({"image": f"{number}.jpg", "words": [{"text": text, "box": box} for text, box in words]})
    (tmp_path / "r.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ["build", "--annotations", tmp_path / "r.jsonl", "--no-check-images", "--out", tmp_path / "p.jsonl"]
    text = output(*arguments)
    assert "from 1 images of 500 asked for; 2 images without a candidate word\n" in text
    helps = "a larger --max-area would give one to 2 of the 2 images"
    assert f"no candidate 4 words too large, 1 word too short; {helps}\n" in text
    assert "no candidate" not in output(*arguments, "--max-area", 0.1)
    assert len(read_probes(tmp_path / "p.jsonl").image_ids) == 3


def test_lines_are_read_as_lines_and_built_strictly(tmp_path: Path) -> None:
    words = [{"text": "BILL", "box": [100, 100, 140, 114]}, {"text": "TO", "box": [150, 100, 170, 114]}]
    form, probes = tmp_path / "f.json", tmp_path / "p.jsonl"
    form.write_text(json.dumps({"form": [{"text": "BILL TO :", "box": [100, 100, 190, 114], "words": words}]}))
    paint(tmp_path / "f.png")
    arguments = ["build", "--annotations", form, "--out", probes, "--max-area", 0.01]
    assert f"images       {tmp_path}\n" in output(*arguments)
    found = read_probes(probes)
    assert (found.probes[0].target_text, found.construction["version"]) == ("BILL", "confirmation-v2")
    output(*arguments, "--lines")
    found = read_probes(probes)
    assert (found.probes[0].target_text, found.construction["version"]) == ("BILL TO", "strict-v3")
    assert (found.construction["lines"], found.source["level"]) == (True, "lines")
    output(*arguments, "--lines", "--version", "confirmation-v2")
    assert read_probes(probes).probes[0].target_text == "BILL TO "
    output("regions", "--annotations", form, "--lines", "--out", tmp_path / "r.jsonl")
    assert '"BILL TO :"' in (tmp_path / "r.jsonl").read_text()
