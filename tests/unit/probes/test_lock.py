from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes import ProbeSet, lock_probes, verify_lock
from sightline.probes.probe_file import lock_path, read_lock

PROBES = tuple(
    Probe(f"p{i}", f"{i}.jpg", f"i{i}", f"q{i}?", "yes", "t", "t", ((0.1, 0.1, 0.2, 0.2),)) for i in range(6)
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "probes.jsonl"
    assert lock_probes(path, ProbeSet(PROBES), images={"0.jpg": "sha256:aa"}) == tmp_path / "probes.jsonl.lock.json"
    return path


def test_an_unchanged_set_passes(path: Path) -> None:
    assert verify_lock(path, ProbeSet(PROBES)).digest == ProbeSet(PROBES).digest


def test_the_message_says_what_changed(path: Path) -> None:
    changed = replace(PROBES[1], label="no", regions=((0.1, 0.1, 0.3, 0.2),))
    added = replace(PROBES[0], id="new")
    with pytest.raises(SightlineError) as caught:
        verify_lock(path, ProbeSet((PROBES[0], changed, *PROBES[3:], added)))
    assert str(caught.value) == (
        f"{path} differs from its lock: 1 changed (p1: label, regions); 1 added (new); 1 removed (p2)"
    )


def test_long_lists_are_cut(path: Path) -> None:
    others = tuple(replace(probe, question="?") for probe in PROBES)
    with pytest.raises(SightlineError, match=r"6 changed \(p0: question; p1: question; p2: question; and 3 more\)"):
        verify_lock(path, ProbeSet(others))


def test_a_field_that_appears_is_a_change(path: Path) -> None:
    shown = (replace(PROBES[0], boxes=()), *PROBES[1:])
    with pytest.raises(SightlineError, match=r"1 changed \(p0: boxes\)"):
        verify_lock(path, ProbeSet(shown))


def test_order_is_content(path: Path) -> None:
    with pytest.raises(SightlineError, match="the same probes in another order"):
        verify_lock(path, ProbeSet(PROBES[::-1]))


def test_changed_images_are_named(path: Path) -> None:
    verify_lock(path, ProbeSet(PROBES), images={"0.jpg": "sha256:aa", "1.jpg": "sha256:cc"})
    with pytest.raises(SightlineError, match=r"1 images with other bytes \(0\.jpg\)"):
        verify_lock(path, ProbeSet(PROBES), images={"0.jpg": "sha256:bb"})


def test_a_lock_does_not_give_way(path: Path) -> None:
    lock_probes(path, ProbeSet(PROBES))
    with pytest.raises(SightlineError, match="locks other content"):
        lock_probes(path, ProbeSet(PROBES[:3]))
    lock_probes(path, ProbeSet(PROBES[:3]), replace=True)
    assert len(verify_lock(path, ProbeSet(PROBES[:3])).fields) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"sightline_lock": 1}'])
def test_other_files_are_no_locks(tmp_path: Path, text: str) -> None:
    (tmp_path / "p.jsonl.lock.json").write_text(text)
    with pytest.raises(SightlineError, match="not a probe lock"):
        verify_lock(tmp_path / "p.jsonl", ProbeSet(PROBES))


@pytest.mark.parametrize(
    "content", ["[]", "[" * 3000, '{"sightline_lock": 1, "digest": "x", "probes": {"a": NaN}}', '{"sightline_lock": 1}']
)
def test_a_damaged_lock_is_one_line(path: Path, content: str) -> None:
    lock_path(path).write_text(content)
    with pytest.raises(SightlineError, match="not a probe lock"):
        read_lock(lock_path(path))
