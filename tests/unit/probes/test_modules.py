from __future__ import annotations

from collections import Counter

from tests.conftest import REPOSITORY

SOURCE = REPOSITORY / "src" / "sightline"


def test_no_two_modules_about_probes_boxes_and_controls_share_a_name() -> None:
    packages = ("probes", "boxes", "controls")
    files = [file for package in packages for file in (SOURCE / package).rglob("*.py") if file.name != "__init__.py"]
    assert len(files) > 30
    assert [name for name, count in Counter(file.name for file in files).items() if count > 1] == []
