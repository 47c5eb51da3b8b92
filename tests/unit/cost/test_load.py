"""Load: the loop with a played clock, where every figure is arithmetic; the model of cost; endpoints that stream."""

import json
import math
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

from sightline.backbones.decoding import Slots
from sightline.core.table import format_value
from sightline.cost import plan as planning
from sightline.cost.benchmarks.load import Load, LoadRequest, shares_of_load
from sightline.cost.card import CostCard
from sightline.cost.load import RequestTimes, latencies, law_rate, percentile, run_load, two_part_law, yield_into
from sightline.cost.measuring_process import measure_here
from sightline.cost.plan import ArmStages, Modelled, StageTimes
from sightline.cost.request import size_of_image
from sightline.cost.subject import Subject
from sightline.engines.base import Question
from sightline.engines.openai import Endpoint
from sightline.report.sections.cost import read_cards, realised_cost_section
from tests.command_line import sightline
from tests.refusals import Refused

TOKEN = 100
"""Bytes of keys and values per token."""


def arm(kept: int, prefill: float, select: float = 0.0, tower: float = 10.0, together: int = 4) -> ArmStages:
    """Milliseconds per request, however many are admitted; 10 tokens of text, 100 of image."""
    each = {"preprocess": 0.0, "tower": tower, "select": select, "prefill": prefill, "other": 0.0}
    admissions = {b: {stage: ms * b for stage, ms in each.items()} for b in (1, together)}
    return ArmStages(100, kept, kept + 10, (kept + 10) * TOKEN, admissions)


def stages(together: int = 1, step: float = 2.0, **arms: ArmStages) -> StageTimes:
    known = {name.replace("_", ":0.", 1): each for name, each in arms.items()} or {"full": arm(100, 5.0)}
    return StageTimes(known, {1: {0: step, 1000: step}, 64: {0: step, 1000: step}}, TOKEN, 64, together, False, "paper")


def test_a_closed_loop_is_arithmetic() -> None:
    for together, clients, period_ms, answered, gap_p99, held in (
        # 15 ms to the first token, 3 further ones of 2 ms each.
        (1, 1, 15 + 3 * 2, 1, 2, 110 + 3),
        # Both are admitted at once and go on side by side.
        (4, 2, 30 + 3 * 2, 2, 2, 2 * (110 + 3)),
        # One at a time: A is admitted, a step; B is admitted, a step; a step that ends A. B ends in the next admission.
        (1, 2, 17 + 17 + 2, 2, 17, 2 * 110 + 3 + 2),
    ):
        server = Modelled(stages(together), "full", tokens=4)
        ended = run_load(server, clients * 9, clients=clients)
        found = latencies(ended, clients, 15.0 * clients, 20.0)
        assert found["requests"] == clients * 8
        assert found["requests_per_s"] == pytest.approx(answered / period_ms * 1e3)
        assert found["gap_p50_ms"] == pytest.approx(2.0)
        assert found["gap_p99_ms"] == pytest.approx(gap_p99)
        assert server.most_held == held * TOKEN
        assert sum(server.spent.values()) == pytest.approx(server.now() * 1e3)


def test_goodput_counts_requests_that_keep_both_bounds() -> None:
    slow, fast = RequestTimes(0, 0.0, [0.5, 0.6, 0.7], 3), RequestTimes(1, 0.0, [0.1, 0.2, 0.3], 3)
    stuck = RequestTimes(2, 0.0, [0.1, 0.5, 1.0], 3)
    assert RequestTimes(3, 0.0, [0.1, 0.5], 5).token_ms == pytest.approx(100.0), "four of them came in one piece"
    found = latencies([fast, slow, stuck], 0, 200, 150)
    assert found["goodput_per_s"] == pytest.approx(1.0)
    assert found["requests_per_s"] == pytest.approx(3.0)
    assert latencies([fast, slow, stuck], 0, 500, 150)["goodput_per_s"] == pytest.approx(2.0)
    assert latencies([fast, slow, stuck], 0)["goodput_per_s"] == pytest.approx(3.0)
    assert found["ttft_p50_ms"] == pytest.approx(100.0)
    assert [percentile(range(1, 101), share) for share in (0.5, 0.99, 1.0)] == [50, 99, 100]
    assert percentile([], 0.5) is None


def test_an_open_loop_is_seeded_and_full_slots_make_everybody_wait() -> None:
    idle = run_load(Modelled(stages(), "full", 4), 400, rate=1.0)
    assert percentile([each.first_ms for each in idle], 0.5) == pytest.approx(15.0)
    assert (idle[-1].sent - idle[0].sent) / 399 == pytest.approx(1.0, rel=0.1)
    again = run_load(Modelled(stages(), "full", 4), 400, rate=1.0)
    other = run_load(Modelled(stages(), "full", 4), 400, rate=1.0, seed=18)
    assert [each.sent for each in again] == [each.sent for each in idle] != [each.sent for each in other]
    crowd = latencies(run_load(Modelled(stages(together=4), "full", 4), 400, rate=1000.0), 0)
    busy = latencies(run_load(Modelled(stages(together=4), "full", 4), 464, clients=64), 64)
    assert crowd["requests_per_s"] == pytest.approx(busy["requests_per_s"], rel=0.02)
    assert crowd["ttft_p99_ms"] > 1000


def test_questions_about_one_image_share_its_tower() -> None:
    server = Modelled(stages(), "full", tokens=2, questions=4)
    ended = run_load(server, 41, clients=1)
    assert server.spent["tower"] == pytest.approx(10.0 * 11)
    assert latencies(ended, 1)["requests_per_s"] == pytest.approx(4 / (4 * (5 + 2) + 10) * 1e3, rel=1e-6)


PAIR: Any = {"full": arm(100, 40.0), "target_2": arm(20, 10.0, select=3.0)}


def test_amdahls_law_from_the_stages_and_the_gain_that_selection_leaves() -> None:
    known = stages(**PAIR)
    spent = {"tower": 10.0, "select": 0.0, "prefill": 40.0, "decode": 6.0, "other": 0.0}
    law, most = planning.amdahl(known, "target:0.2", spent, clients=1)
    assert (law, most) == (pytest.approx(56 / 26), pytest.approx(56 / 16))
    (full, _), (pruned, shares) = (planning.predict(known, each, 4, 40, clients=1) for each in ("full", "target:0.2"))
    assert pruned / full == pytest.approx(56 / 29)
    assert law > 56 / 29
    assert shares["tower"] == pytest.approx(10 / 29)


def test_other_budgets_are_on_the_line_between_those_measured(refused: Refused) -> None:
    known = stages(**PAIR)
    half = known.arm("target:0.6")
    assert (half.kept, half.length, half.prompt_bytes) == (60, 70, 70 * TOKEN)
    assert half.ms("prefill", 1) == pytest.approx(25.0)
    assert half.ms("prefill", 4) == pytest.approx(100.0)
    assert half.ms("select", 1) == 3.0
    assert (
        StageTimes.from_dict(json.loads(json.dumps(known.as_dict())))
        == known
        == planning.medians([known, known, known])
    )
    text = planning.plan(known, "target:0.6", tokens=4, clients=1)
    assert "1.27x" in text
    assert "not measured itself" in text
    assert "tower 23%" in text
    assert "on paper" in text
    assert "No step was measured" not in text
    assert "beyond those that were, lines go on" in planning.plan(known, "target:0.6", tokens=1000, clients=1)
    assert known.arm("target:0.20") is known.arm("target:0.2")
    assert known.arm("target:0.555").kept == 56, "as a run rounds it"
    inside = stages(**PAIR, fastv_2=replace(arm(100, 7.0), prompt_bytes=50 * TOKEN), grid_6=arm(60, 35.0),
                    random_6=arm(60, 15.0))  # fmt: skip
    assert inside.arm("target:0.6").ms("prefill", 1) == pytest.approx(25.0), "what cuts inside is on no line of prompts"
    for text in ("scope:0.3", "fastv:0.5", "resize:0.5"):
        refused(f"no stages of {text}", inside.arm, text)
    refused("full has no budget to set", inside.arm, "full:0.3")
    refused("are more than can be played", planning.plan, known, "target:0.2", 10**6, 16)
    alone = stages(target_2=arm(20, 10.0))
    refused("nothing was measured of the full prefix", planning.plan, alone, "target:0.2", 4, 1)
    refused("no stages to plan from", planning.stages_on, [{"request": {}, "points": [{"extra": {}}]}])


def test_more_work_takes_no_less_time_however_two_points_lie() -> None:
    steps = {1: {100: 2.0, 200: 1.9}, 4: {100: 2.2, 200: 2.1}}
    falling = StageTimes.from_dict({**stages().as_dict(), "steps": steps})
    asked = {(1, 150): 1.95, (1, 9999): 1.9, (64, 9999): 2.1 + 20 * 0.2, (1, 0): 2.0}
    found = {where: falling.step_ms(*where) for where in asked}
    assert found == pytest.approx(asked)


def test_stages_that_no_engine_could_have_are_refused(refused: Refused) -> None:
    one = arm(9, 1.0).__dict__
    changes: list[tuple[dict[str, Any], str]] = [
        ({"steps": {}}, "steps: Dictionary should have at least 1"),
        ({"steps": {1: {100: -2.0}}}, "steps.1.100: Input should be greater than 0"),
        ({"slots": 0}, "slots: Input should be greater"),
        ({"arms": {"full": {**one, "admissions": {1: {"prefill": 1.0}}}}}, "no milliseconds of pre"),
        ({"arms": {"full": {**one, "length": "long"}}}, "arms.full.length: Input should be a valid"),
        ({"token_bytes": None}, "token_bytes: Input should be a valid integer"),
    ]
    for change, about in changes:
        refused(about, StageTimes.from_dict, {**stages().as_dict(), **change})


def curved(admitted: int, length: int) -> float:
    """Milliseconds of prefill that are no line: they grow with the square of the length."""
    return admitted**0.8 * (10 + 0.05 * length + 2e-5 * length**2)


def slowed(slots: int, length: int) -> float:
    """Those of a step, which grow with slots and length."""
    return 6 + 0.02 * slots + 2e-5 * slots * length


class Grown(Modelled):
    """A server whose times are these."""

    def admit(self, places: Any, new: Any) -> list[int]:
        self._pass("prefill", curved(len(new), self.arm.length))
        return [0] * len(new)

    def step(self, among: int) -> None:
        self._pass("decode", slowed(among, self.arm.length))


def test_the_model_predicts_a_server_that_it_saw_one_move_at_a_time() -> None:
    def seen(kept: int) -> ArmStages:
        rest = dict.fromkeys(("preprocess", "tower", "select", "other"), 0.0)
        admissions = {b: {**rest, "prefill": curved(b, kept + 10)} for b in (1, 2, 4)}
        return ArmStages(1000, kept, kept + 10, kept + 10, admissions)

    steps = {n: {length: slowed(n, length) for length in (200, 1200)} for n in (1, 8, 64)}
    known = StageTimes({"full": seen(1000), "grid:0.2": seen(200)}, steps, 1, 64, 4, False)
    errors = []
    for kept, text in ((1000, "full"), (200, "grid:0.2"), (500, "grid:0.5")):
        truth = StageTimes.from_dict(
            {**known.as_dict(), "arms": {**known.as_dict()["arms"], text: seen(kept).__dict__}}
        )
        for clients in (1, 3, 16, 64):
            for tokens in (8, 128):
                ended = run_load(Grown(truth, text, tokens), 5 * clients + 32, clients=clients)
                real = latencies(ended, clients)["requests_per_s"]
                said = planning.predict(known, text, tokens, 5 * clients + 32, clients=clients)[0]
                errors.append(abs(said / real - 1))
    assert statistics.median(errors) < 0.02
    assert max(errors) < 0.1


# vllm-project/vllm pull request 51221: one clip of 24,209 tokens, 12,239 pruned, 256 tokens said, one H200.
CLIENTS = (1, 2, 4, 8, 16, 32)
PUBLISHED = {"full": (1.084, 1.835, 2.896, 3.757, 5.312, 6.424), "pruned": (1.189, 1.778, 2.254, 2.563, 2.825, 2.958)}


def test_two_numbers_explain_the_published_loss_under_load(refused: Refused) -> None:
    """What docs/cost.md says of it."""
    laws = {name: two_part_law(dict(zip(CLIENTS, rates, strict=True))) for name, rates in PUBLISHED.items()}
    for name, rates in PUBLISHED.items():
        errors = [law_rate(laws[name], c) / rate - 1 for c, rate in zip(CLIENTS, rates, strict=True)]
        assert max(map(abs, errors)) < {"full": 0.11, "pruned": 0.022}[name]
    assert [round(each) for name in PUBLISHED for each in laws[name]] == [817, 138, 505, 322]
    (shared, own), (pruned_shared, pruned_own) = laws.values()
    equal = (shared - pruned_shared) / (pruned_own - own)
    assert equal == pytest.approx(1.7, abs=0.05), "clients at which both are equally fast"
    assert two_part_law({1: 1e3 / 30, 4: 4e3 / 60}) == (pytest.approx(20.0), pytest.approx(10.0))
    refused("two numbers of clients at least", two_part_law, {1: 2.0})


# vllm-project/vllm pull request 45106: tokens of 500 prompts sent at once, and requests per second.
COMPARED = {
    "nothing dropped": (853_323, 7.92), "exactly": (441_161, 12.67), "within 0.005": (411_024, 9.86),
    "within 0.02": (361_794, 10.70), "within 0.05": (322_925, 11.20), "within 0.1": (293_955, 10.11),
}  # fmt: skip


def test_a_selection_that_requests_pass_one_at_a_time_eats_what_it_saves() -> None:
    """What docs/cost.md says of it."""
    (many, whole), (few, exact), *tolerant = ((tokens / 500, 1e3 / rate) for tokens, rate in COMPARED.values())
    token = (whole - exact) / (many - few)
    beside = exact - token * few
    assert (round(1e3 * token), round(beside)) == (57, 28)
    comparing = [ms - beside - token * tokens for tokens, ms in tolerant]
    assert (round(min(comparing)), round(max(comparing))) == (24, 37)
    saved = [whole - beside - token * tokens for tokens, _ in tolerant]
    shares = [round(100 * taken / gain) for taken, gain in zip(comparing, saved, strict=True)]
    assert (min(shares), max(shares)) == (39, 57)
    tokens, ms = tolerant[2]
    assert (round(whole / ms, 2), round(whole / (beside + token * tokens), 2)) == (1.41, 1.93)


def test_pruning_pays_from_where_it_never_loses_again() -> None:
    def line(clients: int | None, speedup: float | None, of: str = "target:0.2") -> dict[str, Any]:
        return {"execution": "eager", "arm": of, "batching": "b", "clients": clients, "speedup": speedup, "most": 3.0}

    ratios = {1: 1.1, 2: 0.9, 4: 1.2, 8: 1.5}
    lines = [line(8, 1.5), *(line(c, r) for c, r in ratios.items() if c < 8), line(None, None), line(1, 1.0, "full")]
    (row,) = planning.crossovers(lines)
    assert (row["from_clients"], row["best"], row["best_at"], row["most"]) == (4, 1.5, 8, 3.0)
    assert planning.crossovers([line(1, 0.9)])[0]["from_clients"] is None
    assert planning.crossovers([line(None, math.nan)]) == []


def test_what_cannot_depend_on_the_arm_is_one_measurement() -> None:
    first, second = planning.shared_vision([arm(100, 40.0, tower=9.0), arm(20, 10.0, select=3.0, tower=11.0)])
    assert [each.ms("tower", 4) for each in (first, second)] == [40.0, 40.0]
    assert (first.ms("prefill", 1), second.ms("prefill", 1), second.ms("select", 1)) == (40.0, 10.0, 3.0)


# The engine itself, on a tiny checkpoint.


def test_a_step_of_some_slots_says_what_a_step_of_all_does() -> None:
    subject = Subject.of(LoadRequest(kind="load", config="tiny-llava"))
    backbone, language = subject.backbone, subject.backbone.language
    arms = [subject.arm(text, "eager") for text in ("full", "target:0.3")]
    encoded = backbone.encode([backbone.preprocess(subject.image(0))])
    with torch.inference_mode():
        prefixes = [subject.over(arm, encoded).prefix(0) for arm in arms]
        slots = Slots(language, 8, 200, 6, frozenset())
        for place, prefix in enumerate(prefixes):  # the second comes while the first is speaking
            slots.put([place], language.keep([prefix]), [0])
            slots.step(2, among=place + 1)
        slots.step(3, among=2)
    assert slots.tokens[:2].tolist() == [language.generate(prefix, 6, frozenset()) for prefix in prefixes]
    assert slots.said.tolist() == [6, 6, 0, 0, 0, 0, 0, 0]


def test_a_tiny_engine_under_load_makes_a_card_a_page_and_a_plan(tmp_path: Path) -> None:
    request = LoadRequest(
        kind="load", config="tiny-llava", arms=("full", "target:0.30", "fastv:0.3"), clients=(1, 3), arrivals=(0.5,),
        answer_tokens=3, questions=2, requests=6, slots=4, together=2, repeats=2, warm_up=1,
    )  # fmt: skip
    card = CostCard([measure_here(request)])
    lines = card.lines()
    assert [line["arm"] for line in lines] == ["full"] * 3 + ["target:0.3"] * 3 + ["fastv:0.3"] * 3
    by_load = {(line["arm"], line["clients"]): line for line in lines if line.get("clients")}
    language = Subject.of(request).backbone.language
    layers, token = len(language.layers), 2 * len(language.layers) * language.key_heads * language.head_width * 4
    for (arm, clients), line in by_load.items():
        assert line["said_tokens"] == 3
        assert line["requests"] == max(6, 4 * clients)
        parts = ("preprocess", "tower", "select", "prefill", "decode", "other")
        assert sum(line[f"{part}_ms"] for part in parts) == pytest.approx(line["ms"])
        if arm == "full" and clients == 1:
            assert line["kv_mib"] * 2**20 == (line["length"] + 2) * token
        if arm == "fastv:0.3":  # its first layers hold all, the others what was kept
            less = by_load["full", clients]["kv_mib"] - line["kv_mib"]
            assert 0 < less * 2**20 < clients * line["visual_tokens"] * token * (layers - 1) / layers
    assert by_load["full", 3]["transformers_per_s"] > 0
    assert by_load["full", 3]["alone_per_s"] > 0
    assert by_load["target:0.3", 3]["amdahl"] >= 1
    card.write(tmp_path / "load.json")
    text = (tmp_path / "load.md").read_text(encoding="utf-8")
    assert "no GPU was used" in text
    assert "From where pruning pays" in text
    assert "The language model alone" in text
    (part,) = realised_cost_section(read_cards([tmp_path / "load.json"]), beside_runs=False).parts
    assert [len(group.figures) for group in part.charts] == [4, 1]
    assert "median error over 9 points" in part.tables[0].markdown()
    done = sightline("bench", "plan", tmp_path / "load.json", "--arm", "target:0.5", "--clients", 2)
    assert "a CPU without a GPU" in done.stdout
    assert "not measured itself" in done.stdout


# A server that streams, played on this machine.


ALL = 104
"""Clients of one load, more than a library's usual number of connections."""


class Played(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = ALL

    def __init__(self, own: float, gap: float, ends: str) -> None:
        super().__init__(("127.0.0.1", 0), Plays)
        self.own, self.gap, self.ends, self.turn = own, gap, ends, threading.Lock()
        self.asked: list[dict[str, Any]] = []
        self.all_here = threading.Barrier(ALL)

    @property
    def name(self) -> str:
        return f"openai:http://127.0.0.1:{self.server_address[1]}#m"


class Plays(BaseHTTPRequestHandler):
    server: Played

    def do_GET(self) -> None:
        self.send_error(404)

    def do_POST(self) -> None:
        server, body = self.server, json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(body)
        if not body.get("stream"):
            answer = json.dumps({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 9}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            return
        streams = sum(bool(each.get("stream")) for each in server.asked)
        now_and_then = server.ends == "now and then" and streams % 6 == 3
        if server.ends == "refused" or now_and_then or (server.ends == "gone" and streams > 9):
            self.send_error(400)
            return
        if server.ends == "together":
            server.all_here.wait(30)
        self.send_response(200)
        self.end_headers()
        with server.turn:  # one request at a time
            time.sleep(server.own)
        events: list[Any] = [{"choices": [{"delta": {"role": "assistant", "content": ""}}]}]
        pieces = 0 if server.ends == "silent" else body["max_tokens"]
        events += [{"choices": [None]}, {"choices": "none"}, {"choices": [{"delta": "a"}]}] * bool(pieces)
        word = {"choices": [{"delta": {"content": "a\u2028\x85 "}}]}
        events += [word] * pieces
        events += [{"choices": [], "usage": {"completion_tokens": 2 * pieces}}] if server.ends == "counted" else []
        events = [{"error": {"message": "out of luck"}}] if server.ends == "broken" else events
        for event in events:
            self.wfile.write(f": beat\ndata: {json.dumps(event, ensure_ascii=False)}\n\n".encode())
            self.wfile.flush()
            time.sleep(server.gap if event is word else 0)
        if server.ends != "cut":
            self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def played(own: float = 0.0, gap: float = 0.0, ends: str = "") -> Iterator[Played]:
    with Played(own, gap, ends) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server
        finally:
            server.shutdown()


def test_two_endpoints_at_both_settings(tmp_path: Path) -> None:
    with played(0.02, 0.02) as plain, played(0.06, 0.005, "counted") as pruning:
        request = LoadRequest(
            kind="load", checkpoint=plain.name, pruned=pruning.name, arms=("full", "engine:default"), clients=(1, 2, 4),
            answer_tokens=4, requests=4, image_size=(64, 48), extra="ignore_eos=true",
        )  # fmt: skip
        card = CostCard([measure_here(request)])
    lines = card.lines()
    full, other = (
        {line["clients"]: line for line in lines if line["arm"] == arm and line.get("clients")}
        for arm in ("full", "engine:default")
    )
    # Alone 20 ms, then three gaps of 20; of several nobody waits for another but in the first 20 ms. Nothing is faster
    # than the servers sleep, however busy the machine is.
    assert 2 < full[1]["requests_per_s"] <= 1.02 / 0.08
    assert full[1]["ttft_p50_ms"] > 19
    assert full[1]["gap_p50_ms"] > 19
    # The other takes 60 ms of its own for every request, however many there are, and is slower under load alone.
    assert 2 < other[4]["requests_per_s"] <= 1.02 / 0.06
    assert other[1]["said_tokens"] == 8
    assert full[1]["said_tokens"] == 4
    assert other[4]["speedup"] < 0.9
    assert all("predicted_per_s" in line for line in other.values())
    sent = [body for body in plain.asked if body.get("stream")]
    images = [body["messages"][0]["content"][0]["image_url"]["url"] for body in sent]
    assert len(set(images)) == len(images)
    assert all(body["ignore_eos"] is True and body["max_tokens"] == 4 and "logprobs" not in body for body in sent)
    card.write(tmp_path / "card.json")
    text = (tmp_path / "card.md").read_text(encoding="utf-8")
    assert "what it runs on is not told" in text
    assert "no GPU" not in text
    assert "ceiling" not in text
    (part,) = realised_cost_section(read_cards([tmp_path / "card.json"]), beside_runs=False).parts
    assert not any("GPU" in note for note in part.notes)


def measured(server: Played, *clients: int) -> tuple[list[dict[str, Any]], str]:
    """Lines of a card, and its sentence with its notes."""
    asked: dict[str, Any] = {"clients": clients, "image_size": (64, 48), "requests": 8}
    card = CostCard([measure_here(LoadRequest(kind="load", checkpoint=server.name, arms=("full",), **asked))])
    return card.lines(), f"{card.benchmark.sentence(card.lines(), format_value)} {dict(card.facts())['note']}"


def test_streams_and_servers_that_fail_end_the_measurement_in_a_sentence_or_are_counted(refused: Refused) -> None:
    for ends, about in (
        ("refused", "refuses with 400"),
        ("broken", "out of luck"),
        ("silent", "without a token"),
        ("cut", "after 8 pieces without saying that it is whole"),
    ):
        with played(ends=ends) as server:
            refused(about, measured, server, 1)
    with played(ends="now and then") as server:
        (line,), words = measured(server, 1)
    assert (line["requests"], line["failed"]) == (6, 2), "the first request is the way in"
    assert line["requests_per_s"] == pytest.approx(6 / line["seconds"])
    assert "up to 25% of a load's requests failed" in words
    with played(ends="gone") as server:
        (line,), words = measured(server, 1, 2)
    assert line["clients"] == 1, "loads that were measured stay when the server goes"
    assert "full with 2 clients was not measured: 127.0.0.1" in words


def test_every_client_has_a_connection() -> None:
    with played(ends="together") as server, ThreadPoolExecutor(ALL) as pool:
        endpoint = Endpoint(server.name.removeprefix("openai:"))
        streams = [endpoint.stream(Question("What?", longest=2)) for _ in range(ALL)]
        assert list(pool.map(lambda stream: yield_into(stream, lambda: None), streams)) == [2] * ALL


def test_a_stream_is_read_piece_by_piece() -> None:
    with played(ends="counted") as server:
        pieces: list[int] = []
        stream = Endpoint(server.name.removeprefix("openai:")).stream(Question("What?", longest=3))
        assert yield_into(stream, lambda: pieces.append(1)) == 6
    assert len(pieces) == 3


def test_requests_that_make_no_sense_are_refused(refused: Refused) -> None:
    endpoint = {"checkpoint": "openai:http://127.0.0.1:9#m"}
    assert LoadRequest(kind="load", **endpoint, arms=Load.arms).arms == ("full",)
    pruned: dict[str, Any] = {"config": "x", "arms": ("target:0.2",), "arrivals": (1,)}
    refused("shares of what the full prefix reaches", LoadRequest, "load", **pruned)
    refused("are for endpoints", LoadRequest, "load", config="x", extra="ignore_eos=true")
    refused("would be full again", LoadRequest, "load", **endpoint, arms=("full", "engine:default"))
    refused("write openai:URL#NAME", LoadRequest, "load", **endpoint, pruned="http://x")
    refused("--arrivals 1,x", shares_of_load, "1,x")
    refused("--arrivals 1e-300", shares_of_load, "1e-300")
    refused("--image-size 0x9", size_of_image, "0x9")
    refused("--extra ignore_eos sets nothing", LoadRequest, "load", **endpoint, extra="a=1,ignore_eos")
    with played() as server:
        clash = LoadRequest(kind="load", checkpoint=server.name, arms=("full", "engine:extra.a.b=2"), extra="a=1")
        refused("extra.a is a value and holds fields", measure_here, clash)
    for text in ("target:0.2", "resize:0.5", "engine:jpeg=50"):
        refused(f"arm '{text}' under load", measure_here, LoadRequest(kind="load", **endpoint, arms=(text,)))
