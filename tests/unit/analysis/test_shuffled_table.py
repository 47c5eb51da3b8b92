"""Every method beside the shuffled control of its budget."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.report.sections.differences import shuffled_frame
from sightline.statistics.bootstrap import SEED, count_blocks

IMAGES, DRAWS = 24, 400
ROLES = {"target": "method", "shuffled": "control", "random": "control", "evidence_only": "oracle", "full": "reference"}


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for arm in ("full", "target:0.2", "target:0.3", "shuffled:0.3", "random:0.3", "evidence_only:0.3"):
        selector, _, budget = arm.partition(":")
        for label in ("yes", "no"):
            parts.append(
                pd.DataFrame(
                    {
                        "model": "m", "arm": arm, "plain_arm": arm, "selector": selector, "role": ROLES[selector],
                        "budget": budget or "1.0", "intervention": "none", "view": "orig", "label": label,
                        "probe_id": [f"{i}{label}" for i in range(IMAGES)], "image_id": [f"{i}" for i in range(IMAGES)],
                        "margin": rng.normal(size=IMAGES), "keep": 0.3, "ecr": rng.random(IMAGES),
                        "anchor_ecr": rng.random(IMAGES),
                    }
                )
            )  # fmt: skip
    found = pd.concat(parts, ignore_index=True)
    found["predicted"] = np.where(found["margin"] >= 0, "yes", "no")
    return found.assign(correct=found["predicted"] == found["label"])


@pytest.mark.usefixtures("plain_percentiles")
@pytest.mark.parametrize(("metric", "column"), [("pn_average", "ecr"), ("anchor_pn_average", "anchor_ecr")])
def test_the_change_is_control_minus_arm_over_the_same_draws(rows: pd.DataFrame, metric: str, column: str) -> None:
    (line,) = shuffled_frame(rows, draws=DRAWS).to_dict("records")
    assert (line["arm"], line["control"], line["n"]) == ("target:0.3", "shuffled:0.3", 2 * IMAGES)

    def by_label(arm: str) -> np.ndarray:
        """(2, images) coverage of one arm on positives and on negatives, images by sorted id."""
        table = rows[rows["arm"] == arm].pivot_table(index="label", columns="image_id", values=column)
        return table.sort_index(axis=1).to_numpy()

    control, arm = by_label("shuffled:0.3"), by_label("target:0.3")
    assert line[metric] == pytest.approx(arm.mean())
    assert line[f"control_{metric}"] == pytest.approx(control.mean())
    assert line[f"delta_{metric}"] == pytest.approx(control.mean() - arm.mean())
    drawn = []
    for counts in np.concatenate(list(count_blocks(IMAGES, DRAWS, SEED))).astype(int):
        images = np.repeat(np.arange(IMAGES), counts)
        drawn.append((control[:, images] - arm[:, images]).mean())
    bounds = (line[f"delta_{metric}_low"], line[f"delta_{metric}_high"])
    assert bounds == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_rows_of_the_first_release_do_not_say_what_is_a_method(rows: pd.DataFrame) -> None:
    found = shuffled_frame(rows.assign(role=None), draws=DRAWS)
    assert set(found["arm"]) == {"target:0.3", "random:0.3", "evidence_only:0.3"}


def test_without_a_control_it_says_what_to_add(rows: pd.DataFrame) -> None:
    with pytest.raises(SightlineError, match=r"add it, for example shuffled:0\.3"):
        shuffled_frame(rows[rows["selector"] != "shuffled"], draws=DRAWS)
