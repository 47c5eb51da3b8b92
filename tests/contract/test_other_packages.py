"""Somebody else's package, installed: its selector is found, listed, parsed as an arm and run."""

from __future__ import annotations

from pathlib import Path

from sightline.commands.new_package import write_selector
from tests.contract.installed import copy_of_example, install, run_with

SCRIPT = """
import torch
from sightline.arms import parse_arm
from sightline.cost.selection import Inputs
from sightline.core.selection_rules import check_selection
from sightline.selectors import SELECTORS

assert {name!r} in SELECTORS.names()
arm = parse_arm({arm!r})
assert type(arm.selector).__module__ == {module!r}, type(arm.selector)
view = Inputs(48, torch.device("cpu"), seed=3).view(arm.selector.needs)
k = arm.budget.resolve(48)
check_selection(arm.selector.select(view, k), 48, k, arm.selector.name)
print(arm.text)
"""


PROMISES = """
from sightline.contract import check_backbone, check_format, check_metric, check_selector
from sightline_example_plugin.box_average import BoxAverage
from sightline_example_plugin.boxes_csv import BoxesCsv
from sightline_example_plugin.gray_llava import GrayLlava
from sightline_example_plugin.reciprocal_rank import reciprocal_rank
from sightline_example_selector import LocalContrast

check_selector(BoxAverage())
check_selector(LocalContrast())
check_metric(reciprocal_rank, rank=[1, 2, 3])
check_format(BoxesCsv(), {table!r})
check_backbone(GrayLlava, {checkpoint!r})
print("kept")
"""


def test_the_example_packages_run_and_keep_their_promises(example_site: Path, tmp_path: Path, data: Path) -> None:
    arm = "local_contrast:0.25:sharpness=2.0"
    script = SCRIPT.format(name="local_contrast", arm=arm, module="sightline_example_selector")
    assert run_with(example_site, script) == arm
    table = tmp_path / "words.csv"
    table.write_text(
        "image,width,height,text,x1,y1,x2,y2\na.jpg,100,50,EXIT,10,10,30,20\na.jpg,100,50,OPEN,50,10,90,20\n"
    )
    script = PROMISES.format(table=str(table), checkpoint=str(data / "tiny" / "llava"))
    assert run_with(example_site, script) == "kept"


BROKEN = """
import sys
from sightline.cli import main
from sightline.arms import parse_arm
from sightline.errors import SightlineError

parse_arm("target:0.3")
sys.argv = ["sightline", "selectors"]
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
try:
    parse_arm("longest:0.3")
except SightlineError as error:
    print(error)
"""


def test_a_scaffolded_package_is_found_and_stops_no_other_if_it_cannot_be_imported(tmp_path: Path) -> None:
    write_selector("longest", tmp_path / "source")
    install(tmp_path / "source", tmp_path / "site")
    script = SCRIPT.format(name="longest", arm="longest:7t", module="longest")
    assert run_with(tmp_path / "site", script) == "longest:7t"
    for file in (tmp_path / "site" / "longest.py", *(tmp_path / "site" / "__pycache__").glob("longest.*")):
        file.unlink()
    (tmp_path / "site" / "longest.py").write_text("raise ImportError('compiled for another machine')\n")
    *_, listed, refused = run_with(tmp_path / "site", BROKEN).splitlines()
    assert listed == f"broken: {refused}"
    assert refused.startswith("selector 'longest' of package sightline-longest cannot be loaded (ImportError: compiled")


def test_parts_that_cannot_be_imported_stop_no_other_part(tmp_path: Path, data: Path) -> None:
    source = copy_of_example("sightline-example-plugin", tmp_path / "source")
    for part in ("boxes_csv", "gray_llava", "materialise"):
        file = source / "src" / "sightline_example_plugin" / f"{part}.py"
        file.write_text("raise ImportError('compiled for another machine')\n")
    install(source, tmp_path / "site")
    script = f"""
import sys
from sightline.cli import main
from sightline.errors import SightlineError
from sightline.probes import load_regions

for words in ("backbones", "probes formats", "bench --help"):
    sys.argv = ["sightline", *words.split()]
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
annotations = {str(data / "mini_textocr" / "TextOCR_mini_val.json")!r}
print("images:", len(load_regions(annotations).records))
try:
    load_regions(annotations, units="pixels", nonsense=1)
except SightlineError as error:
    print(error)
"""
    said = run_with(tmp_path / "site", script)
    broken = "of package sightline-example-plugin cannot be loaded (ImportError: compiled for another machine)"
    assert f"broken: architecture 'gray_llava' {broken}" in said
    assert f"broken: annotation format 'boxes_csv' {broken}" in said
    assert "llava  positions: compact" in said
    assert "one JSON document with imgs, anns and imgToAnns" in said
    assert "Time and memory of the language layers over a batch of prefixes" in said
    *_, counted, refused = said.splitlines()
    assert counted == "images: 116"
    assert refused.startswith("format textocr has no option 'nonsense'; known: order, units, pairing")
