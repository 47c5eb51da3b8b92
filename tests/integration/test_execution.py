"""How an audit runs is recorded, may not change under one folder, and changes no decision."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline.audit import audit
from sightline.errors import SightlineError

FAST = {"execution": "graph", "batch_images": 2}


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "run.json").read_text()))


@pytest.mark.parametrize("model", ["qwen3vl", "llava"])
def test_a_faster_way_of_running_decides_alike(
    config: Any, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = ["full", "target:0.3", "grid:0.3"]
    plain = audit(config(model, arms=arms, out=tmp_path / "plain")).frame()
    assert "set-up took" not in capsys.readouterr().err
    fast = audit(config(model, arms=arms, out=tmp_path / "fast", **FAST)).frame()
    assert "graph: set-up took" in capsys.readouterr().err
    assert plain["predicted"].tolist() == fast["predicted"].tolist()
    assert plain["kept_mask"].tolist() == fast["kept_mask"].tolist()
    assert np.allclose(plain["margin"], fast["margin"], atol=1e-4)
    facts = manifest(tmp_path / "fast")
    assert (facts["execution"], facts["batch_images"]) == ("graph", 2)
    assert facts["setup_ms"] > 0
    assert "setup_ms" not in manifest(tmp_path / "plain")


@pytest.mark.parametrize(("field", "value", "shown"), [("execution", "graph", "eager"), ("batch_images", 2, "1")])
def test_another_way_of_running_does_not_amend_a_run(config: Any, field: str, value: Any, shown: str) -> None:
    settings = {"arms": ["full"], "limit": 1}
    audit(config("llava", **settings))
    with pytest.raises(SightlineError, match=f"holds a run with {field} {shown}, this command has {value}"):
        audit(config("llava", **settings, **{field: value}))


def test_runs_from_before_these_options_can_be_resumed(config: Any) -> None:
    settings = config("llava", arms=["full"], limit=1)
    audit(settings)
    old = {name: value for name, value in manifest(settings.out).items() if name not in FAST}
    (settings.out / "run.json").write_text(json.dumps(old))
    assert len(audit(config("llava", arms=["full", "grid:0.3"], limit=1)).frame()) == 4
    with pytest.raises(SightlineError, match="holds a run with execution eager"):
        audit(config("llava", arms=["full"], limit=1, execution="graph"))


def test_a_method_inside_the_model_needs_eager_execution(config: Any) -> None:
    with pytest.raises(SightlineError, match="fastv prunes between layers, which only eager execution does"):
        audit(config("llava", arms=["full", "fastv:0.5"], execution="compiled"))


def test_a_wrong_selector_of_a_later_arm_leaves_finished_arms(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The arm before it is still pending when the launch fails; its rows are written all the same."""
    from sightline.selectors.grid import Grid
    from sightline.store import RunFolder
    from sightline.types import Selection, TokenView

    def one_too_few(self: Grid, view: TokenView, k: int) -> Selection:
        import torch

        return Selection(torch.arange(k - 1))

    settings = config("llava", arms=["full", "grid:0.3"], limit=1)
    monkeypatch.setattr(Grid, "select", one_too_few)
    with pytest.raises(SightlineError, match="selector grid returned"):
        audit(settings)
    folder = RunFolder(settings.out)
    done, missing = folder.manifest()["arms"]
    assert folder.has_rows(done, 0)
    assert not folder.has_rows(missing, 0)
