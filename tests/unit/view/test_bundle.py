"""A bundle: one script of all modules, the data of the chosen cases, images as files; bad wishes in one line."""

import json
import re
from collections import Counter
from pathlib import Path

from sightline.view.bundle import IMPORT, joined_script, write_bundle
from sightline.view.runs import viewed_runs
from sightline.view.server import PAGES, PageData
from tests.refusals import Refused


def test_all_modules_are_joined_asked_for_at_once_and_declare_no_name_twice() -> None:
    script = joined_script()
    modules = {file.stem for file in PAGES.glob("*.js")}
    assert set(re.findall(r"^// (\w+)$", script, re.MULTILINE)) == modules
    assert "import " not in script
    assert not re.search(r"^export", script, re.MULTILINE)
    assert "</script" not in script
    for file in PAGES.glob("*.js"):
        lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.startswith("import")]
        assert len(IMPORT.findall(file.read_text(encoding="utf-8"))) == len(lines), file.name
    declared = re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", script, re.MULTILINE)
    assert [name for name, count in Counter(declared).items() if count > 1] == []
    page = (PAGES / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r"/view/(\w+)\.js", page)) == modules - {"held_answers"}


def test_a_bundle_holds_what_was_chosen_and_no_more(run: Path, tmp_path: Path, refused: Refused) -> None:
    answers = PageData(viewed_runs([run], None))
    page = write_bundle(answers, tmp_path / "site", 'label == "no" and arm == "full"', 3)
    text = page.read_text(encoding="utf-8")
    held = json.loads(re.search(r'id="bundle">(.*?)</script>', text)[1])  # type: ignore[index]
    assert list(held["cases"][0]) == ["img0000:no", "img0001:no", "img0002:no"]
    assert len(held["rows"][0]) == 3 * 8
    assert sorted(file.name for file in (tmp_path / "site" / "images").iterdir()) == sorted(
        name.removeprefix("images/") for name in held["images"][0].values()
    )
    assert "unsafe-inline" not in text
    assert str(run.parent) not in text
    refused("is not empty", write_bundle, answers, tmp_path / "site", "", 3)
    refused("at least one case", write_bundle, answers, tmp_path / "other", "ecr > 2", 3)
    assert not (tmp_path / "other").exists()
