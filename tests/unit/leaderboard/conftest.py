"""One small leaderboard of two tiny models, made once for all tests of a session."""

from dataclasses import replace
from pathlib import Path

import pytest

from sightline.probes import HardPairRules, build_hard_pairs, load_regions, write_probes
from sightline_leaderboard.contest import Contest, MeasuredModel, measure
from sightline_leaderboard.standings import Record, record_of


@pytest.fixture(scope="session")
def contest(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Contest:
    """Qwen3-VL has no class token, so that SCOPE cannot run there; LLaVA has a fixed size, so that Resize cannot."""
    folder, mini = tmp_path_factory.mktemp("leaderboard"), data / "mini_textocr"
    pairs = build_hard_pairs(load_regions(mini / "TextOCR_mini_val.json").records, HardPairRules(limit_images=4))
    write_probes(folder / "probes.jsonl", pairs.probes)
    return Contest(
        out=folder / "board",
        models={"qwen": str(data / "tiny/qwen3vl"), "llava": str(data / "tiny/llava")},
        probes=folder / "probes.jsonl",
        images=mini,
        methods=("target", "scope", "dart", "soft_evidence", "resize"),
        budgets=("0.3", "0.5"),
        pages=3,
        run={"device": "cpu", "dtype": "float32"},
        image_options={"qwen": {"max_pixels": 100352}},
    )


@pytest.fixture(scope="session")
def measured(contest: Contest) -> list[MeasuredModel]:
    return measure(contest)


@pytest.fixture(scope="session")
def record(contest: Contest, measured: list[MeasuredModel]) -> Record:
    return record_of(contest, measured, rank_by="", draws=200, seed=17)


@pytest.fixture
def fresh(contest: Contest, tmp_path: Path) -> Contest:
    """One model, one budget, a folder of its own: for what must not touch the shared runs."""
    models = {"llava": contest.models["llava"]}
    return replace(contest, out=tmp_path / "board", models=models, methods=("target",), budgets=("0.3",))
