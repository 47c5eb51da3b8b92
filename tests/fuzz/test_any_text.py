"""What holds for any text and any JSON whatever: looked for by hypothesis, which shrinks what it finds."""

from __future__ import annotations

import math
import unicodedata
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline.arms import parse_arm
from sightline.auditing.config import read_config
from sightline.core.text import BEGINNINGS, as_text, from_text
from sightline.errors import UNPRINTED, SightlineError
from sightline.gate.rules import parse_rule
from sightline.probes.dialects import OWN_KEYS, artifact_row, own_row, probe_from_artifact, probe_from_own
from sightline.probes.fetched_images import check_image_name
from sightline.selectors import SELECTORS
from sightline.statistics.thresholds import read_thresholds
from sightline.store.manifest import check_manifest

MANY = settings(
    max_examples=300,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=12,
)
NUMBERS = st.floats().map(repr) | st.integers().map(str) | st.sampled_from(["none", "true", "", "1e999"])


@MANY
@given(st.text())
def test_a_message_is_one_printable_line(text: str) -> None:
    line = str(SightlineError(text))
    assert not any(unicodedata.category(character) in UNPRINTED for character in line)
    assert line.encode("utf-8").decode("utf-8") == line


@MANY
@given(st.text())
def test_no_cell_is_a_formula_and_every_text_comes_back(text: str) -> None:
    cell = as_text(text)
    assert from_text(cell) == text
    if cell.startswith(BEGINNINGS):
        float(cell)  # a number is all that may begin so


@st.composite
def arms(draw: st.DrawFn) -> str:
    """Something like an arm: any method, any budget, any of its arguments with any value."""
    name = draw(st.sampled_from(sorted(set(SELECTORS) - {"masks"})))
    known = list(getattr(SELECTORS.get(name), "__dataclass_fields__", {})) or ["seed"]
    pairs = draw(st.lists(st.tuples(st.sampled_from(known), NUMBERS), max_size=3))
    budget = draw(st.sampled_from(["0.3", "4t", ""]) | NUMBERS)
    return f"{name}:{budget}:" + ",".join(f"{key}={value}" for key, value in pairs)


@MANY
@given(arms() | st.text(max_size=40))
def test_an_arm_is_refused_or_means_what_its_canonical_form_means(text: str) -> None:
    try:
        arm = parse_arm(text)
    except SightlineError:
        return
    again = parse_arm(arm.text)
    assert again.text == arm.text
    assert again.arguments == arm.arguments


@MANY
@given(st.text(max_size=60) | NUMBERS.map(lambda number: f"accuracy(full) >= {number}"))
def test_any_rule_is_refused_or_has_a_bound(text: str) -> None:
    try:
        rule = parse_rule(text)
    except SightlineError:
        return
    assert math.isfinite(rule.bound)


@MANY
@given(NUMBERS | st.text(max_size=20))
def test_any_threshold_is_refused_or_one_rule(text: str) -> None:
    try:
        rules = read_thresholds([text])
    except SightlineError:
        return
    assert len(rules) == 1


@MANY
@given(st.dictionaries(st.sampled_from(OWN_KEYS) | st.text(max_size=8), ANY_JSON, max_size=len(OWN_KEYS)))
def test_any_object_is_a_probe_or_refused(row: dict[str, Any]) -> None:
    for reader, writer in ((probe_from_own, own_row), (probe_from_artifact, artifact_row)):
        try:
            probe = reader(row)
        except SightlineError:
            continue
        assert reader(writer(probe)) == probe


@MANY
@given(st.text(max_size=30))
def test_an_image_name_that_is_taken_stays_below_the_root(name: str) -> None:
    try:
        taken = check_image_name(name)
    except SightlineError:
        return
    assert Path("/root/of/images", taken).is_relative_to("/root/of/images")
    assert ".." not in Path(taken).parts


@MANY
@given(ANY_JSON | st.dictionaries(st.sampled_from(["arms", "shards", "bad_images", "schema", "model"]), ANY_JSON))
def test_any_manifest_is_sound_or_refused(content: Any) -> None:
    try:
        found = check_manifest(content, Path("run.json"))
    except SightlineError:
        return
    assert all(isinstance(arm, str) for arm in found["arms"])


@MANY
@given(content=st.dictionaries(st.sampled_from(["model", "arms", "limit", "out", "seed"]) | st.text(), ANY_JSON))
def test_any_configuration_is_read_or_refused(tmp_path: Path, content: dict[str, Any]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        found = read_config(file, {})
    except SightlineError:
        return
    assert found.arms == content["arms"]


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!binary x", "!unknown 3"]
)
def test_no_tag_of_a_configuration_makes_anything_run(tmp_path: Path, tag: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model: {tag}\n", encoding="utf-8")
    with pytest.raises(SightlineError):
        read_config(file, {})
