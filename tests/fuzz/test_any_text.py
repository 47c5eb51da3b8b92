"""What holds for any text and any JSON whatever: looked for by hypothesis, which shrinks what it finds."""

import math
import unicodedata
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sightline import SELECTORS, SightlineError
from sightline.arms import parse_arm
from sightline.auditing.config import read_config
from sightline.core.text import BEGINNINGS, as_text, from_text
from sightline.errors import UNPRINTED
from sightline.gate.rules import parse_rule
from sightline.probes.dialects import OWN_KEYS, artifact_row, own_row, probe_from_artifact, probe_from_own
from sightline.probes.fetched_images import check_image_name
from sightline.statistics.thresholds import read_thresholds
from sightline.store.manifest import check_manifest

MANY = settings(
    max_examples=300,
    derandomize=True,
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


def read_settings(content: dict[str, Any]) -> Any:
    """A configuration with this content, read from a file."""
    with NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        yaml.safe_dump(content, file)
        file.flush()
        return read_config(Path(file.name), {})


ROWS = st.dictionaries(st.sampled_from(OWN_KEYS) | st.text(max_size=8), ANY_JSON, max_size=len(OWN_KEYS))
MANIFESTS = st.dictionaries(st.sampled_from(["arms", "shards", "bad_images", "schema", "model"]), ANY_JSON)
SETTINGS = st.dictionaries(st.sampled_from(["model", "arms", "limit", "out", "seed"]) | st.text(), ANY_JSON)
RULES = st.text(max_size=60) | NUMBERS.map(lambda number: f"accuracy(full) >= {number}")
Holds = Callable[[Any, Any], bool]
TAKEN: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], Any], Holds]] = {
    "an arm means what its canonical form means": (
        arms() | st.text(max_size=40),
        parse_arm,
        lambda arm, _: (parse_arm(arm.text).text, parse_arm(arm.text).arguments) == (arm.text, arm.arguments),
    ),
    "a rule has a bound": (RULES, parse_rule, lambda rule, _: math.isfinite(rule.bound)),
    "a threshold is one rule": (
        NUMBERS | st.text(max_size=20),
        lambda text: read_thresholds([text]),
        lambda rules, _: len(rules) == 1,
    ),
    "a probe comes back": (ROWS, probe_from_own, lambda probe, _: probe_from_own(own_row(probe)) == probe),
    "a probe of the artifact comes back": (
        ROWS,
        probe_from_artifact,
        lambda probe, _: probe_from_artifact(artifact_row(probe)) == probe,
    ),
    "an image name stays below the root": (
        st.text(max_size=30),
        check_image_name,
        lambda name, _: Path("/root", name).is_relative_to("/root") and ".." not in Path(name).parts,
    ),
    "a manifest is sound": (
        ANY_JSON | MANIFESTS,
        lambda content: check_manifest(content, Path("run.json")),
        lambda found, _: all(isinstance(arm, str) for arm in found["arms"]),
    ),
    "a configuration is as it is written": (
        SETTINGS,
        read_settings,
        lambda found, content: bool(found.arms == content["arms"]),
    ),
}
"""What holds of anything that is not refused -> (what is tried, how it is read, whether that holds)."""


@pytest.mark.parametrize("what", TAKEN)
def test_anything_is_refused_or_taken_for_what_it_is(what: str) -> None:
    anything, read, holds = TAKEN[what]

    @MANY
    @given(anything)
    def tried(content: Any) -> None:
        try:
            found = read(content)
        except SightlineError:
            return
        assert holds(found, content)

    tried()


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['true']", "!!python/name:os.system", "!!binary x", "!unknown 3"]
)
def test_no_tag_of_a_configuration_makes_anything_run(tmp_path: Path, tag: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"model: {tag}\n", encoding="utf-8")
    with pytest.raises(SightlineError):
        read_config(file, {})
