"""Runs of an engine: rows, refusals, what is not told, and that nothing is asked twice."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

import sightline
from sightline.auditing.config import AuditConfig
from sightline.auditing.engine_worker import REQUESTS, Requests, engine_arms, yes_and_no
from sightline.checks.demo import asset
from sightline.checks.doctor.engines import examine_engine
from sightline.core.probe import Probe
from sightline.engines import ENGINES, Engine, Heard, Question, engine_of
from sightline.engines.base import TokenGrid
from sightline.errors import OutageError
from sightline.probes.images import open_image
from sightline.report.build import build_report
from sightline_leaderboard.contest import Contest, measure
from sightline_leaderboard.standings import record_of
from tests.refusals import Refused

SCENES = asset("scenes", "confirmation")
ANSWERS = {
    probe["image"]: probe["answers"][0]
    for probe in map(json.loads, (SCENES / "open_probes.jsonl").read_text("utf-8").splitlines()[1:])
}


@dataclass
class Played:
    """What all engines of a test share: how they behave, and what they were asked."""

    asked: list[Question] = field(default_factory=list)
    counts: str = "all"
    setting: int = 1
    slow: float = 0.0
    traces: bool = False
    fails_at: int | None = None
    refused: int = 0
    uncounted: bool = False
    """Whether it is gone whenever the tokens of an image are to be counted."""
    ms: float | None = None
    most: int = 0
    now: int = 0


PLAYED = Played()


class Player(Engine):
    """One token for 32 x 32 pixels; the first cells are kept; ratio 100 does nothing, as with a real one."""

    name: ClassVar[str] = "player"
    switches: ClassVar[dict[str, str]] = {"pruning_ratio": "percent of the tokens that are pruned"}
    parallel = 3
    _lock = threading.Lock()

    @property
    def model(self) -> str:
        return "played"

    @property
    def traces(self) -> bool:
        return PLAYED.traces

    def facts(self) -> dict[str, Any]:
        return {"model_type": "qwen3_vl", "versions": {"player": "1"}, "setting": PLAYED.setting}

    def requested_keep(self, switches: Any) -> float | None:
        return 1 - int(switches.get("pruning_ratio", 0)) / 100

    def pruning_arm(self, keep: float) -> str | None:
        return f"engine:pruning_ratio={round(100 - 100 * keep)}"

    def grid(self, size: tuple[int, int]) -> TokenGrid | None:
        return TokenGrid(size[1] // 32, size[0] // 32, 1024) if PLAYED.traces else None

    def ask(self, question: Question) -> Heard:
        with self._lock:
            PLAYED.now += 1
            PLAYED.most = max(PLAYED.most, PLAYED.now)
            if PLAYED.fails_at is not None and len(PLAYED.asked) >= PLAYED.fails_at:
                PLAYED.refused += 1
                raise OutageError("the engine is gone; start it again")
            PLAYED.asked.append(question)
        if PLAYED.uncounted and question.image is not None and question.longest == 1:
            raise OutageError("the engine is away")
        time.sleep(PLAYED.slow)
        size = question.image.size if question.image is not None else (0, 0)
        n, ratio = (size[0] // 32) * (size[1] // 32), int(question.switches.get("pruning_ratio", 0))
        kept = n if ratio >= 100 else n - n * ratio // 100
        with self._lock:
            PLAYED.now -= 1
        return Heard(
            "yes" if ratio < 50 else "no\ud83d",
            {"ratio": ratio, "said": "two \u2028 lines, half a letter \ud83d"},
            {"all": len(question.text) + kept, "text": len(question.text) - bool(n), "none": None}[PLAYED.counts],
            tokens=1,
            cut_off=False,
            first={"Yes": -0.1, " yes": -3.0, "no": -4.0},
            ms=PLAYED.ms,
            cells=tuple(range(kept)) if PLAYED.traces else None,
        )


@pytest.fixture(autouse=True)
def _player(monkeypatch: pytest.MonkeyPatch) -> None:
    global PLAYED
    PLAYED = Played()
    ENGINES.names()
    monkeypatch.setitem(ENGINES._entries, "player", Player)


def run(out: Path, *arms: str, **options: Any) -> Any:
    given = {"images": SCENES / "open_images", "probes": SCENES / "open_probes.jsonl", "limit": 4, **options}
    return sightline.audit(AuditConfig(model="player:x", arms=list(arms), out=out, **given))


def test_rows_have_the_columns_of_every_run_and_realised_budgets(tmp_path: Path) -> None:
    found = run(tmp_path / "run", "full", "engine:pruning_ratio=30", "resize:0.5", "engine:jpeg=20",
                interventions=["occlusion"])  # fmt: skip
    rows = found.frame()
    keep = rows.groupby("arm")["keep"].first()
    assert keep["full"] == keep["engine:jpeg=20"] == 1.0
    assert keep["engine:pruning_ratio=30"] == pytest.approx(1 - 58 / 196)
    assert 0.3 < keep["resize:0.5"] <= 0.5
    assert {"engine:pruning_ratio=30+occlude_evidence", "full+occlude_evidence"} <= set(rows["arm"])
    assert rows[["ecr", "answer_loss", "confidently_wrong"]].isna().all().all()
    assert (rows["sequence_full"] - rows["sequence_pruned"] == rows["n_tokens"] - rows["k_tokens"]).all()
    assert found.manifest["engine"]["name"] == "player"
    assert found.manifest["dtype"] is None
    assert {"dtype", "positions", "attention"} <= set(found.manifest["engine"]["untold"])
    assert PLAYED.most <= Player.parallel
    asked = {question.system for question in PLAYED.asked if question.image is not None and question.longest > 1}
    pages = [id(question.image) for question in PLAYED.asked if question.longest > 1 and not question.switches]
    assert len(set(pages)) < len(pages), "an image is made once for its questions"
    assert asked == {"You are a helpful OCR assistant. Answer with the shortest correct text only."}
    assert build_report([tmp_path / "run"], tmp_path / "report").is_file()


def test_traced_cells_become_masks_and_coverage(tmp_path: Path) -> None:
    PLAYED.traces = True
    rows = run(tmp_path / "run", "full", "engine:pruning_ratio=50", "resize:0.5").frame().set_index("arm")
    assert (rows.loc[["full", "resize:0.5"], "ecr"] == 1.0).all()
    pruned = rows.loc["engine:pruning_ratio=50"]
    assert (pruned["k_tokens"] == 98).all()
    assert set(pruned["kept_mask"].map(len)) == {25}
    assert pruned["ecr"].between(0, 1).all()
    assert (pruned["ecr"] < 1).any()


@pytest.mark.parametrize("counts", ["none", "text"])
def test_an_engine_that_counts_no_image_leaves_shares_empty(tmp_path: Path, counts: str) -> None:
    PLAYED.counts = counts
    rows = run(tmp_path / "run", "full", "engine:pruning_ratio=30").frame()
    assert len(rows) > 0
    assert rows[["keep", "n_tokens", "k_tokens", "sequence_full"]].isna().all().all()
    assert build_report([tmp_path / "run"], tmp_path / "report").is_file()


def test_a_killed_run_asks_nothing_twice(tmp_path: Path, refused: Refused) -> None:
    PLAYED.fails_at = 9
    refused("the engine is gone", run, tmp_path / "run", "full", "engine:pruning_ratio=30")
    assert PLAYED.refused <= Player.parallel, "those under way: nobody else is asked any more"
    before = list(PLAYED.asked)
    torn = next((tmp_path / "run" / REQUESTS).glob("*.jsonl"))
    while len(lines := torn.read_bytes().splitlines(keepends=True)) < 9:  # one may still be under way
        time.sleep(0.01)
    torn.write_bytes(b"".join(lines) + '{"key": "half a €'.encode()[:-1])
    PLAYED.fails_at = None
    resumed = run(tmp_path / "run", "full", "engine:pruning_ratio=30")
    assert len(before) == len(lines) == 9
    asked_again = [q for q in PLAYED.asked[9:] if any(q == old for old in before)]
    assert not asked_again
    files = (tmp_path / "run" / REQUESTS).glob("*.jsonl")
    kept = [json.loads(line)["key"] for file in files for line in file.open("rb") if line.endswith(b"\n")]
    assert len(set(kept)) == len(kept) == len(PLAYED.asked)
    whole = run(tmp_path / "other", "full", "engine:pruning_ratio=30")
    times = [name for name in whole.frame() if name.endswith("_ms")]
    assert resumed.frame().drop(columns=times).equals(whole.frame().drop(columns=times))


def test_whoever_asks_the_same_meanwhile_waits_for_its_answer(tmp_path: Path) -> None:
    PLAYED.slow = 0.05
    requests = Requests(Player("x"), tmp_path)
    with ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(requests.ask, [Question("What is this?")] * 3))
    assert len(PLAYED.asked) == 1
    assert answers[0] is answers[1] is answers[2]


def test_an_image_that_could_not_be_counted_during_an_outage_is_not_left_out(tmp_path: Path, refused: Refused) -> None:
    PLAYED.uncounted = True
    refused("the engine is away", run, tmp_path / "run", "full")
    PLAYED.uncounted = False
    assert run(tmp_path / "run", "full").frame()["image_id"].nunique() == 4
    PLAYED.setting = 2
    refused("holds a run of an engine with setting 1, now 2; choose another", run, tmp_path / "run", "full")


REFUSALS = {
    "target:0.3": r"needs the model's layers, which player does not show; arms of an engine are full, resize:KEEP",
    "engine:unknown=1": r"player has no switch 'unknown'; it has pruning_ratio",
    "engine:jpeg=101": r"jpeg=101 is no quality from 1 to 100",
    "engine:pruning_ratio": r"'pruning_ratio' is neither a kept fraction",
    "engine:pruning_ratio=": r"is no switch; write engine:SWITCH=VALUE",
    "engine:jpeg=1,jpeg=2": r"sets one switch twice",
    "full+swap_positions": r"shows no mask to change",
}


NOT_PRUNED = {
    "engine:pruning_ratio=100": "was to keep 0% of 196 visual tokens and all of them reached the language model",
    "engine:pruning_ratio=-50": "has 294 visual tokens, more than the 196 that the same image",
    "resize:0.999": "makes as many tokens of a smaller image",
}


def test_what_an_engine_cannot_do_is_refused_before_it_is_asked(tmp_path: Path, refused: Refused) -> None:
    for arm, words in REFUSALS.items():
        refused(words, run, tmp_path / "run", arm)
        assert not PLAYED.asked, arm
        assert not (tmp_path / "run").exists(), arm


def test_no_pruning_although_it_was_asked_for_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    monkeypatch.setattr("sightline.auditing.engine_worker.ShownImages._smaller", lambda self, size, share: size)
    for number, (arm, words) in enumerate(NOT_PRUNED.items()):
        refused(words, run, tmp_path / str(number), arm)


def test_yes_and_no_are_judged_by_words_or_by_first_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Refused
) -> None:
    asked = {"images": SCENES / "images", "probes": SCENES / "probes.jsonl"}
    by_word = run(tmp_path / "word", "full", "engine:pruning_ratio=60", **asked).frame()
    assert set(by_word["answer"]) == {"yes", "no\ufffd"}
    assert by_word["answer_tokens"].eq(1).all()
    likely = run(tmp_path / "likely", "full", scorer="yes_no", **asked).frame()
    assert likely["margin"].gt(0).all()
    assert likely["loss_yes"].iloc[0] == pytest.approx(0.0464, abs=1e-3)
    probe = Probe("p", "i", "i", "?", "yes", "", "", ())
    refused("how likely 'no' is", yes_and_no, probe, Heard("yes", {}, first={"yes": -0.1}), "player")
    never = yes_and_no(probe, Heard("", {}, first={"yes": 0, "no": -9999}), "")
    assert [each.loss for each in never] == [0, 9999]
    monkeypatch.setattr(Player, "untold", {"margin": "it tells no likelihoods"}, raising=False)
    asked_before = len(PLAYED.asked)
    refused("--scorer yes_no: it tells no likelihoods", run, tmp_path / "untold", "full", scorer="yes_no", **asked)
    assert len(PLAYED.asked) == asked_before
    refused("likelihoods of whole answers", run, tmp_path / "rank", "full", scorer="candidate_ranking")


def test_doctor_finds_a_switch_that_does_nothing_and_chooses_arms() -> None:
    engine = engine_of("player:x")
    assert engine is not None
    assert engine_of("unknown:x") is None
    assert engine_of("org/name") is None
    PLAYED.ms = 250.0  # what answering took, without whatever else was done for it
    found = examine_engine(engine, SCENES / "open_probes.jsonl", SCENES / "open_images", questions=2)
    assert found.facts["seconds_per_answer"] == 0.25
    by_name = {check.name: check for check in found}
    assert not by_name["switches"].passed
    assert "engine:pruning_ratio=100 keeps all 196 of 196" in by_name["switches"].words
    assert by_name["determinism"].passed
    assert not by_name["answers"].applies
    page = open_image(SCENES / "open_images", next(iter(ANSWERS)))
    assert engine_arms(engine, page, [0.5]) == ["full", "engine:pruning_ratio=50", "resize:0.5"]


def test_an_engine_has_its_place_on_a_leaderboard_without_chance(tmp_path: Path) -> None:
    files = (SCENES / "open_probes.jsonl", SCENES / "open_images")
    contest = Contest(tmp_path, {"played": "player:x"}, *files, ["engine", "target"], ["0.5", "64t"], 4)
    (measured,) = measure(contest)
    assert [entry.arm for entry in measured.lineup.entries] == ["full", "engine:pruning_ratio=50"]
    refusals = [(refusal.method, refusal.budget) for refusal in measured.lineup.refusals]
    assert refusals == [("engine", "64t"), ("target", "")]
    record = record_of(contest, [measured], rank_by="score", draws=100, seed=1)
    (line,) = record["models"][0]["standings"]["0.5"]
    assert (line["method"], line["keep"], line["gain"]) == ("engine", 0.5, None)
    asked = len(PLAYED.asked)
    measure(contest)
    assert len(PLAYED.asked) == asked
