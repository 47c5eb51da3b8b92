"""Config files: keys spelled as fields or as flags, and one line for whatever else a file may hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.auditing.config import read_config
from sightline.errors import SightlineError

NEEDED = "model: m\nprobes: p.jsonl\nimages: i\nout: o\n"


def test_keys_are_spelled_as_fields_or_as_their_flags(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(NEEDED + "arms: [full, 'target:0.3']\nimage_options: {max_pixels: 3}\nbox_source: missing\n")
    plural = read_config(file, {})
    file.write_text(NEEDED + "arm: [full, 'target:0.3']\nimage-option: {max_pixels: 3}\nbox-source: missing\n")
    assert read_config(file, {}) == plural
    file.write_text(NEEDED + "arm: full\nimport: mine.py\n")
    single = read_config(file, {})
    assert single.arms == ["full"]
    assert single.imports == [Path("mine.py")]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"arms: [full]\narm: full\n", "names 'arms' twice, once as 'arm'"),
        (b"\xff\xfe\x00model: m", "is not UTF-8 text"),
        (b"1: 2\n", "1 is no option"),
        (b"? [a, b]\n: c\n", "not valid YAML"),
        (b"model: !!python/object:os.system x\n", "not valid YAML"),
        (b"[" * 5000, "nested too deeply"),
        (b"- model\n", "must hold a mapping of options"),
        (b"model: 2001-99-99\n", "not valid YAML"),
        (b"model: &a [*a]\n", "--model"),
        (b"limit: .nan\n", "--limit"),
    ],
)
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_bytes(content)
    overrides = {"probes": "p", "images": "i", "out": "o", **({} if b"model" in content else {"model": "m"})}
    with pytest.raises(SightlineError) as caught:
        read_config(file, {**overrides, **({} if b"arm" in content else {"arms": ["full"]})})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_config_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere.yaml"):
        with pytest.raises(SightlineError, match="cannot read config"):
            read_config(path, {})
