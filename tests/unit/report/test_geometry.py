from __future__ import annotations

from pathlib import Path

import pytest

from sightline.report.geometry import probe_sizes, strata_table, union_area
from sightline.report.source import read_source
from tests.unit.report.fake_run import COLUMNS, ROWS


def test_union_area_counts_overlap_once() -> None:
    assert union_area([[0, 0, 0.5, 0.5]]) == 0.25
    assert union_area([[0, 0, 0.5, 0.5], [0.25, 0.25, 0.75, 0.75]]) == pytest.approx(0.25 + 0.25 - 0.0625)
    assert union_area([[0, 0, 1, 1], [0.2, 0.2, 0.4, 0.4]]) == pytest.approx(1.0)


def test_thirds_hold_the_same_number_of_probes(run: Path) -> None:
    source = read_source([run])
    sizes = probe_sizes(source.runs[0])
    assert len(sizes) == 40
    assert sizes["cell_area"].to_numpy() == pytest.approx(1 / (ROWS * COLUMNS), rel=1e-4)
    frame = strata_table(source).frame
    one = frame[(frame["arm"] == "full") & (frame["by"] == "evidence area")]
    assert one["probes"].sum() == 20
    assert one["probes"].max() - one["probes"].min() <= 1
    assert one["stratum"].tolist() == ["smallest third", "middle third", "largest third"]
    assert "median cell area" not in set(frame["by"]), "a fixed raster has nothing to split by cell size"
