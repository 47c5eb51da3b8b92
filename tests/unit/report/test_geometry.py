from __future__ import annotations

from pathlib import Path

import pytest

from sightline.report.sections.geometry import strata_table
from sightline.rows.source import read_source
from tests.unit.report.fake_run import COLUMNS, ROWS


def test_thirds_hold_the_same_number_of_probes(run: Path) -> None:
    source = read_source([run])
    sizes = source.runs[0].scales
    assert len(sizes) == 40
    assert sizes["median_cell_area"].to_numpy() == pytest.approx(1 / (ROWS * COLUMNS), rel=1e-4)
    frame = strata_table(source).frame
    one = frame[(frame["arm"] == "full") & (frame["by"] == "evidence area")]
    assert one["probes"].sum() == 20
    assert one["probes"].max() - one["probes"].min() <= 1
    assert one["stratum"].tolist() == ["smallest third", "middle third", "largest third"]
    assert "median cell area" not in set(frame["by"]), "a fixed raster has nothing to split by cell size"
