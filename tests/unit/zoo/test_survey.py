"""The table of all image-text types: what a line says, and that it counts what it shows."""

import re

import pytest
import transformers
from benchmarks.architectures import OUTCOMES, Line, survey, table, totals

from sightline.backbones.from_transformers import image_text_types
from tests.conftest import REPOSITORY

LINES = [
    Line("qwen2_vl", "Qwen2VLForConditionalGeneration", True, True, True, "general", ""),
    Line("idefics", "IdeficsForVisionText2Text", False, False, False, "refused", "it says <|why|>"),
    Line("aria", "AriaForConditionalGeneration", True, True, False, "refused", "no cells"),
]


def test_totals_count_those_with_image_features_apart_and_a_reason_does_not_break_the_table() -> None:
    said = "3 types: 1 served by the general route, 2 refused. Of 2 with image features 1 are served."
    assert totals(LINES) == said
    rows = table(LINES).splitlines()
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {7}
    assert "refused: it says &lt;\\|why\\|>" in rows[3]


@pytest.mark.parametrize(("model_type", "outcome"), [
    ("mllama", "exact"), ("evolla", "refused"), ("deepseek_vl", "general"), ("aria", "no cells"), ("llama4", "exact"),
])  # fmt: skip
def test_a_type_is_looked_at(model_type: str, outcome: str) -> None:
    line = survey(model_type)
    assert line.outcome == outcome, line.reason
    assert bool(line.reason) == (outcome not in ("exact", "general") or model_type == "llama4")


def test_the_page_has_every_type_of_the_installed_transformers() -> None:
    page = (REPOSITORY / "docs" / "architectures.md").read_text(encoding="utf-8")
    if f"transformers {transformers.__version__}." not in page:
        pytest.skip("the page was made with another version of transformers")
    shown = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", page, re.MULTILINE)
    assert dict(shown) == image_text_types()
    outcomes = re.findall(r"^\| `[^`]+` .*\| ([^|:]+?)(?:: .*)? \|$", page, re.MULTILINE)
    assert set(outcomes) <= set(OUTCOMES.values())
