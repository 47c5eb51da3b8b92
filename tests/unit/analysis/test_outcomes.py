"""Rows joined into samples: each margin comes from the arm it is said to come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from sightline.analysis.outcomes import samples
from sightline.rows.images import probe_scales
from sightline.rows.run import load_run
from tests.unit.report.fake_run import make_run


@pytest.mark.parametrize("first", ["full", "full+remove_evidence", "full+swap_positions"])
def test_the_full_margin_is_the_plain_one_whichever_arm_was_named_first(tmp_path: Path, first: str) -> None:
    arms = [*dict.fromkeys([first, "full", "full+remove_evidence", "full+swap_positions", "full+occlude_evidence"])]
    run = load_run(make_run(tmp_path / "run", images=6, arms=[*arms, "target:0.3"]))
    plain = run.frame().query("arm == 'full'").set_index("probe_id")["margin"]
    found = samples(run.frame(), probe_scales(run)).set_index("probe_id")
    assert found["full_margin"].to_dict() == plain[found.index].to_dict()
    grayed = run.frame().query("arm == 'full+occlude_evidence'").set_index("probe_id")["margin"]
    assert found["occlusion_drop"].tolist() == pytest.approx((plain - grayed)[found.index].tolist())
