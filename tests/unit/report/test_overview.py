"""The top of the page: one interval for one share."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.report.overview import main_table
from sightline.report.sections.provenance import provenance_table
from sightline.report.source import read_source
from sightline.report.summary import summarise
from sightline.statistics.bootstrap import SEED
from tests.unit.report.conftest import DRAWS


@pytest.mark.parametrize("name", ["weakly_supported", "unsupported"])
def test_a_share_has_one_interval_in_the_main_table_and_in_provenance(run: Path, name: str) -> None:
    source = read_source([run])
    arms = summarise(source, DRAWS).arms.set_index("arm")
    provenance = provenance_table(source, DRAWS, SEED).frame.set_index("arm")
    bounds = [f"{name}_low", f"{name}_high"]
    assert arms[bounds].equals(provenance[bounds])
    assert (arms[bounds[1]] > arms[bounds[0]]).all(), "not even a share of 0 is known exactly"


def test_the_caption_says_which_intervals_are_wilsons(run: Path) -> None:
    summary = summarise(read_source([run]), DRAWS)
    unvaried = [str(arm) for arm in summary.arms.loc[summary.arms["unsupported"].isin([0.0, 1.0]), "arm"]]
    assert "full" in unvaried
    assert f"Unsupported of {', '.join(unvaried)}" in main_table(summary).caption
    varied = summary.arms[summary.arms["wilson"] == ""]
    assert len(varied)
    assert "Wilson" not in main_table(type(summary)(varied, summary.differences, [])).caption
