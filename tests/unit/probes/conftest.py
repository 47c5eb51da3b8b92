from __future__ import annotations

import pytest

from sightline.probes.stand_ins.published_layouts import StandIns, write_stand_ins


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """TextVQA, DocVQA and OCRBench in small, in the files that their publishers ship. Tests read them only."""
    return write_stand_ins(tmp_path_factory.mktemp("stand-ins"))
