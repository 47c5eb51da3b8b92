"""A run as a notebook shows it, and the example notebook, whose cells are executed here.

``python -m tests.unit.rows.test_notebook`` executes them and writes what they show into the file.
"""

import ast
import base64
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from sightline.rows.notebook import CASES, SIDE, telling_probes
from sightline.rows.run import load_run
from tests.runs.yes_no import HOSTILE, make_run

NOTEBOOK = Path(__file__).parents[3] / "examples" / "run-in-a-notebook.ipynb"
PICTURE = re.compile(r"data:image/jpeg;base64,([^\"]+)")


def test_a_notebook_shows_arms_with_their_numbers_and_pictures_of_cases(data: Path, tmp_path: Path) -> None:
    said = repr(load_run(data / "recorded_run"))
    assert re.fullmatch(r"Run\('.*recorded_run': qwen3vl, 32 arms, 192 rows\)", said)
    arms = ("full", "target:0.3", "grid:0.3", "target:0.3+remove_evidence")
    run = load_run(make_run(tmp_path / "run", images=8, arms=arms))
    page = run._repr_html_()
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith("data:image/jpeg;base64,") for address in addresses)
    cells = re.findall(r"<t[dh][^>]*>([^<]*)", page)
    plain = run.frame().query("intervention == 'none'")
    for arm in arms[:3]:
        line = cells[cells.index(arm) :]
        assert f"{plain[plain['arm'] == arm]['correct'].mean():.3f}" in line[:8]
    assert arms[3] not in cells, "what an intervention did is no result of an arm"
    assert len(addresses) == CASES * 3
    sizes = {Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).width for address in addresses}
    assert sizes == {SIDE}


def test_cases_in_which_arms_disagree_come_first_and_nothing_becomes_markup(tmp_path: Path) -> None:
    def edit(row: dict[str, Any]) -> None:
        right = row["arm"] == "full" or row["image_id"] != "img0004"
        row |= {"correct": right, "predicted": row["label"] if right else {"yes": "no", "no": "yes"}[row["label"]]}

    made: dict[str, Any] = {"images": 6, "arms": ("full", "grid:0.3"), "manifest": {"model": HOSTILE}}
    run = load_run(make_run(tmp_path / "run", edit_row=edit, **made))
    probes = telling_probes(run.frame())
    assert probes[0].startswith("img0004")
    assert len({probe.split(":")[0] for probe in probes}) == len(probes) == CASES
    assert "<script" not in run._repr_html_()


def executed() -> list[dict[str, Any]]:
    """The cells of the notebook with what each shows: HTML or a picture where its last line has one, else words."""
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        body = ast.parse("".join(cell["source"])).body
        last = body.pop() if isinstance(body[-1], ast.Expr) else None
        exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), names)
        cell["outputs"] = []
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)
            cell["outputs"] = [{"data": _shown(shown), "metadata": {}, "output_type": "display_data"}]
    return cells


def _shown(value: Any) -> dict[str, str]:
    if isinstance(value, Image.Image):
        sink = io.BytesIO()
        value.save(sink, "JPEG", quality=60)
        return {"image/jpeg": base64.b64encode(sink.getvalue()).decode()}
    return {"text/html": value._repr_html_(), "text/plain": repr(value)}


def test_the_example_notebook_shows_what_it_shows_when_it_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    stored = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    monkeypatch.chdir(NOTEBOOK.parent)
    for cell, again in zip(stored, executed(), strict=True):
        if cell["cell_type"] != "code":
            continue
        (then,), (now,) = ([output["data"] for output in each["outputs"]] for each in (cell, again))
        assert list(then) == list(now), "python -m tests.unit.rows.test_notebook writes it anew"
        for kind in (kind for kind in then if kind.startswith("text/")):
            assert PICTURE.sub("", then[kind]) == PICTURE.sub("", now[kind])


if __name__ == "__main__":
    import os

    os.chdir(NOTEBOOK.parent)
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    notebook["cells"] = executed()
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
