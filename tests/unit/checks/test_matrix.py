"""Every method on every model: what counts as served, and how it is shown."""

import io
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from sightline.answering.materialise import Trace
from sightline.checks.doctor.methods import refuse_inconsistent
from sightline.checks.matrix import Matrix, methods, page, run_matrix, sheet
from sightline.core.selection import PARITY_WORDS, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.vispruner import VisPruner
from tests.command_line import sightline
from tests.conftest import DATA
from tests.refusals import Refused


@pytest.fixture(scope="module")
def matrix(zoo: Callable[[str], Path]) -> Matrix:
    models = {name: str(zoo(name)) for name in ("deepseek_vl", "aya_vision", "vipllava")}
    return run_matrix(models, "0.3", device="cpu")


def served(matrix: Matrix, place: int) -> set[str]:
    return {name for name, tried in matrix.columns[place].methods.items() if tried.state == "served"}


def test_no_method_that_is_said_to_run_fails(matrix: Matrix) -> None:
    assert matrix.failed == 0, page(matrix, None)
    for column in matrix.columns:
        assert list(column.methods.keys() - set(methods())) == []
        for tried in column.methods.values():
            assert (tried.kept is not None) == (tried.state == "served") == (tried.reason == "")


def test_methods_that_read_the_tower_run_on_the_general_route(matrix: Matrix) -> None:
    for place in range(3):
        assert served(matrix, place) >= {"tome", "duet", "mmtok", "visionzip_qwen", "anchorprune_qwen"}
    plain, sliding, clip = (served(matrix, place) for place in range(3))
    assert "fastv" in plain
    assert not {"scope", "hired", "prumerge"} & (plain | sliding), "there is no class token to read"
    attended = {"fastervlm", "vispruner", "holov", "visionzip"}
    assert clip >= attended | {"scope", "prunesid", "prumerge"}
    for place, other in ((0, True), (1, True), (2, False)):
        assert served(matrix, place) >= attended
        assert {bool(matrix.columns[place].methods[name].form) for name in attended} == {other}
    text = page(matrix, None)
    assert f"- vispruner: {VisPruner().other_form(4).form}" in text, "where the form was published"
    assert re.search(r"^\| vispruner \| \*\d", text, re.MULTILINE), "in italics"


def test_a_method_that_draws_anew_is_not_served(zoo: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    class Moody(Selector):
        name = "divprune"
        asked = 0

        def select(self, view: TokenView, k: int) -> Selection:
            Moody.asked += 1
            return Selection(torch.arange(k) + Moody.asked % 2)

    known = SELECTORS.get
    monkeypatch.setattr(SELECTORS, "get", lambda name: Moody if name == "divprune" else known(name))
    found = run_matrix({"one": str(zoo("deepseek_vl"))}, "0.3", device="cpu")
    tried = found.columns[0].methods["divprune"]
    assert tried.state == "FAILED"
    assert "asked again it keeps other tokens" in tried.reason
    assert found.failed == 1
    assert "**FAILED**" in page(found, None)


def trace(**changed: Any) -> Trace:
    masks = np.array([True, True, False, False]), np.array([True, True, True, False])
    return replace(Trace(*masks, np.ones(4), 2, None, 9, 7, 0.1, 0.2, 0.3), **changed)


def test_masks_that_do_not_fit_their_budget_or_their_lineage_are_refused(refused: Refused) -> None:
    refuse_inconsistent(trace(), 4)
    refuse_inconsistent(trace(k=3), 4)  # one of them a class token
    for wrong, words in (
        (trace(k=4), "2 tokens are anchors of 4 outputs"),
        (trace(lineage=np.array([True, False, True, False])), "not among what its output is made from"),
        (trace(lineage=np.ones(5, dtype=bool)), "masks of 4 and 5 of 4 tokens"),
    ):
        refused(words, refuse_inconsistent, wrong, 4)


def test_the_page_counts_and_gives_every_reason_once(matrix: Matrix) -> None:
    text = page(matrix, "sheet.png")
    others = {name for name, kind in SELECTORS.items() if kind.published_by_others()}
    assert f"| deepseek_vl | deepseek_vl, General, loop | {len(served(matrix, 0) & others)} of {len(others)} |" in text
    reasons = [line for line in text.splitlines() if line[:1].isdigit()]
    assert len(reasons) == len({line.partition(". ")[2] for line in reasons})
    assert "![Cells that every method keeps on every model](sheet.png)" in text
    assert re.search(r"^\| divprune \| .* \| exact-index \|$", text, re.MULTILINE), "equal to what was recorded"
    assert f"- `exact-index`: {PARITY_WORDS['exact-index']}" in text


def test_the_sheet_shows_kept_cells_dark(matrix: Matrix) -> None:
    drawn = Image.open(io.BytesIO(sheet(matrix))).convert("RGB")
    red, _, blue = np.moveaxis(np.asarray(drawn), -1, 0)
    dark = int(((red < 40) & (blue > 120)).sum())
    assert 0.05 < dark / (drawn.width * drawn.height) < 0.6


def test_the_command_writes_page_and_sheet(tmp_path: Path) -> None:
    out = tmp_path / "matrix.md"
    models = f"tiny={DATA / 'tiny' / 'llava'}"
    sightline("matrix", "--models", models, "--budget", 0.2, "--device", "cpu", "--out", out)
    assert "| tiny | llava, Llava, loop |" in out.read_text(encoding="utf-8")
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    sightline("matrix", code=2)
