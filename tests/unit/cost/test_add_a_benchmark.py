"""The example of the cost page, installed as somebody else's package: one file makes a command, a card and a report."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as an installer leaves it: the page's module, and the entry point that the page gives it."""
    page = (REPOSITORY / "docs" / "cost.md").read_text(encoding="utf-8")
    section = page[page.index("## Add a benchmark") :]
    blocks = dict(re.findall(r"^```(python|toml)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[:2])
    ((group, points),) = tomllib.loads(blocks["toml"])["project"]["entry-points"].items()
    ((name, value),) = points.items()
    module = value.partition(":")[0]
    folder = tmp_path_factory.mktemp("site")
    file = folder.joinpath(*module.split(".")).with_suffix(".py")
    file.parent.mkdir(parents=True)
    file.write_text(blocks["python"], encoding="utf-8")
    (file.parent / "__init__.py").touch()
    information = folder / "my_package-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    return folder


def sightline(site: Path, arguments: str, *, torch: bool = True, code: int = 0) -> str:
    """What the command prints, to stderr if it is to end with an error."""
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH", ""))))
    hidden = "" if torch else "sys.modules['torch'] = None;"
    script = f"import sys; {hidden} sys.argv[0] = 'sightline'; from sightline.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments.split()],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        cwd=REPOSITORY,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def test_its_command_appears_with_its_options_without_torch(site: Path) -> None:
    assert "Time of vision tower and projector over a batch of images" in sightline(site, "bench --help", torch=False)
    said = sightline(site, "bench vision --help", torch=False)
    for words in ("--images", "Images per call of the vision tower.", "--shape", "--share-process"):
        assert words in said


def test_it_measures_in_a_process_of_its_own_and_is_reported(site: Path, tmp_path: Path) -> None:
    card = tmp_path / "vision.json"
    printed = sightline(
        site,
        "bench vision --shape tiny-llava --random-weights --device cpu --images 3 --repeats 2 --warm-up 1 "
        f"--out {card}",
    )
    assert printed.startswith("# Cost card: vision tower over a batch of images")
    assert "- `encode`: vision tower and projector; images preprocessed beforehand" in printed
    (measured,) = json.loads(card.read_text(encoding="utf-8"))["results"]
    assert measured["request"]["images"] == 3
    (point,) = measured["points"]
    assert len(point["samples_ms"]["encode"]) == 2
    assert all(ms > 0 for ms in point["samples_ms"]["encode"])
    sightline(site, f"report --cost {card} --out {tmp_path / 'report'}")
    page = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "Vision tower over a batch of images: tiny-llava, vision.json" in page
    table = (tmp_path / "report" / "tables" / "realised_vision.csv").read_text(encoding="utf-8")
    assert table.splitlines()[0].startswith("arm,execution,batch,kept_tokens,length,ms,ms_low,ms_high,samples_per_s")


def test_an_execution_it_does_not_run_is_refused(site: Path) -> None:
    said = sightline(site, "bench vision --shape tiny-llava --random-weights --execution graph", code=2)
    assert said == "error: unknown execution 'graph'; vision runs eager\n"
