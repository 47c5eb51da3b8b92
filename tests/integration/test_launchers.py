"""Where the work runs, how many do it and who dies meanwhile: the rows are the same."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest

from sightline import SELECTORS, AuditConfig, audit, load_run, read_probes
from tests import launching
from tests.integration.conftest import MODELS
from tests.launching import facts_of, wait_until, workers_of
from tests.refusals import Refused
from tests.warm_python import warm_children


@pytest.fixture(scope="module", autouse=True)
def _warm() -> Iterator[None]:
    """Workers of these drivers find torch imported."""
    with warm_children():
        yield


SETTINGS: dict[str, Any] = {
    "arms": ["full", "target:0.3", "fastv:0.5"], "interventions": ["occlusion"],
    "limit": 4, "shard_images": 1, "threads": 1,
}  # fmt: skip


def probe_of(probes: Path, number: int) -> str:
    """The id of the first probe about the image of that number."""
    asked = read_probes(probes).probes
    image = list(dict.fromkeys(probe.image for probe in asked))[number]
    return next(probe.id for probe in asked if probe.image == image)


@pytest.fixture
def touchy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[launching.Touchy]:
    made = launching.Touchy(tmp_path)
    monkeypatch.setenv(launching.TOUCHY, str(made.moods))
    yield made
    SELECTORS._entries.pop("touchy", None)


HELD = 2
"""The image at whose first probe whoever comes to it waits."""


@pytest.fixture
def held(config: Any, touchy: launching.Touchy, mini_probes: Path) -> AuditConfig:
    """Work that does not end before the selector is in a better mood."""
    touchy.be(waits=[probe_of(mini_probes, HELD)])
    settings = {**SETTINGS, "arms": ["full", "touchy:0.3"], "interventions": []}
    return cast(AuditConfig, config("llava", **settings, imports=[touchy.plugin]))


def changed(config: AuditConfig, **changes: Any) -> AuditConfig:
    return AuditConfig(**{**config.model_dump(exclude_unset=True), **changes})


@pytest.fixture
def undisturbed(held: AuditConfig, touchy: launching.Touchy, tmp_path: Path) -> Any:
    """The rows of that work when nothing happens, with the selector in its best mood."""

    def rows() -> Any:
        touchy.be()
        return facts_of(audit(changed(held, out=tmp_path / "undisturbed")).path)

    return rows


@pytest.mark.parametrize("model", MODELS)
def test_rows_are_the_same_whoever_computes_them(config: Any, model: str, tmp_path: Path) -> None:
    here = audit(config(model, **SETTINGS, out=tmp_path / "inline"))
    crews = ["local", *(["ray"] if model == "llava" and find_spec("ray") else [])]
    there = [config(model, **SETTINGS, out=tmp_path / name, launcher=name, workers=2) for name in crews]
    for crew in there:
        audit(crew)
    shared = config(model, **SETTINGS, out=tmp_path / "queue", launcher="queue")
    with launching.running(other := launching.start(shared)):
        wait_until(lambda: workers_of(shared.out), [other])
        audit(shared)
        launching.finish(other)
    for run in (*there, shared):
        assert facts_of(run.out).equals(facts_of(here.path)), run.launcher
        assert not (run.out / "leases").exists(), "whoever is done holds nothing"


def test_progress_for_programs_is_lines_of_json(config: Any, capsys: pytest.CaptureFixture[str]) -> None:
    audit(config("llava", arms=["full"], limit=2, shard_images=1, json_progress=True))
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    told = [line for line in lines if line["event"] == "progress"]
    assert lines[0] == {"event": "waiting", "what": "checking probes, images and model"}
    assert {"event": "waiting", "what": "loading llava"} in lines
    assert told[0]["done"] == 0
    assert told[-1]["done"] == told[-1]["total"] == 4
    assert told[-1]["unit"] == "rows"


def test_without_ray_the_extra_is_named_before_anything_is_loaded(
    config: Any, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sightline.auditing.launchers.ray.find_spec", lambda name: None)
    refused("pip install 'sightline[ray]'", audit, config("llava", model="nowhere", launcher="ray"))


def test_work_that_fails_twice_is_set_aside_and_the_rest_completes(
    config: Any, touchy: launching.Touchy, mini_probes: Path, tmp_path: Path
) -> None:
    arms = ["full", "touchy:0.3", "center:0.3"]
    settings = config("llava", arms=arms, limit=3, shard_images=1, launcher="queue", imports=[touchy.plugin])
    touchy.be(raises=[probe_of(mini_probes, 1)])
    run = audit(settings)
    reason = f"it failed 2 times (selector touchy failed (KeyError: '{probe_of(mini_probes, 1)}')"
    assert run.failed["00001"]["touchy:0.3"].startswith(reason)
    assert (run.missing, len(run.failed)) == (1, 1)
    assert "shard 00001 under touchy:0.3 was set aside: it failed 2 times" in run.unfinished
    assert set(facts_of(run.path)["arm"].to_pylist()) == set(arms)

    touchy.be()
    mended = audit(settings)
    assert (mended.missing, mended.failed, mended.unfinished) == (0, {}, "")
    plain = audit(settings.model_copy(update={"out": tmp_path / "plain", "launcher": "inline"}))
    assert facts_of(mended.path).equals(facts_of(plain.path))


def test_what_ends_its_worker_three_times_is_set_aside(
    config: Any, touchy: launching.Touchy, mini_probes: Path
) -> None:
    touchy.be(dies=[probe_of(mini_probes, 0)])
    arms = ["touchy:0.3", "full"]
    settings = config("llava", arms=arms, limit=1, imports=[touchy.plugin], launcher="local", workers=1)
    with launching.running(driver := launching.start(settings)):
        _, err = launching.finish(driver, code=1)
    run = load_run(settings.out)
    assert list(run.failed) == ["00000"]
    assert list(run.failed["00000"]) == ["touchy:0.3"], "what was done beside it is not to blame"
    assert "it ended its worker 3 times" in run.failed["00000"]["touchy:0.3"]
    assert "set aside: shard 00000 under touchy:0.3" in err
    assert set(run.frame()["arm"]) == {"full"}


def test_a_queue_process_joins_a_driver(held: AuditConfig, touchy: launching.Touchy, undisturbed: Any) -> None:
    with launching.running(first := launching.start(held)), ThreadPoolExecutor(1) as pool:
        wait_until(lambda: launching.row_files(held.out), [first])
        pool.submit(lambda: (wait_until(lambda: workers_of(held.out), [first]), touchy.be()))
        run = audit(changed(held, launcher="queue"))
        assert run.missing == 0
        launching.finish(first)
    assert facts_of(held.out).equals(undisturbed())


def test_dead_workers_are_replaced_and_another_number_of_them_goes_on(
    held: AuditConfig, touchy: launching.Touchy, undisturbed: Any
) -> None:
    two = changed(held, launcher="local", workers=2)
    task = f"{HELD:05d}"
    with launching.running(driver := launching.start(two)):
        first = wait_until(lambda: launching.holders(two.out).get(task), [driver])
        known = workers_of(two.out)
        launching.kill(first)
        wait_until(lambda: launching.holders(two.out).get(task) not in (first, None), [driver])
        wait_until(lambda: set(workers_of(two.out)) - {*known, first}, [driver])
        workers = [pid for pid in workers_of(two.out) if launching.is_alive(pid)]
        launching.kill(driver.pid)
        driver.wait()
        wait_until(lambda: not any(launching.is_alive(pid) for pid in workers))
    done = {file: file.stat().st_mtime_ns for file in launching.row_files(two.out)}
    assert load_run(two.out).missing
    expected = undisturbed()
    audit(held)
    assert {file: file.stat().st_mtime_ns for file in done} == done, "what was finished is not computed again"
    assert facts_of(two.out).equals(expected)


def test_a_worker_whose_heart_beats_while_nothing_moves_loses_its_task(held: AuditConfig, undisturbed: Any) -> None:
    """Its process lives and its thread of beats too; only its work hangs, for ever."""
    queued = changed(held, launcher="queue", worker_timeout=1.5, standstill=1.5)
    hangs = "import time, sightline.answering.answerer as a\na.launch_batches = lambda *_: time.sleep(10**6)"
    expected = undisturbed()
    with launching.running(hung := launching.start(queued, script=hangs)):
        wait_until(lambda: any(name[0].isdigit() for name in launching.holders(held.out)), [hung])
        assert audit(queued).missing == 0
        assert hung.poll() is None
    assert facts_of(held.out).equals(expected)


def test_a_run_folder_that_is_moved_while_it_is_written_goes_on_where_it_is(
    held: AuditConfig, touchy: launching.Touchy, undisturbed: Any, tmp_path: Path
) -> None:
    with launching.running(first := launching.start(held)):
        wait_until(lambda: launching.row_files(held.out), [first])
        held.out.rename(tmp_path / "moved")
        touchy.be()
        _, err = launching.finish(first, code=2)
    assert f"error: {held.out} is gone: it was moved or deleted while this command was writing to it" in err
    assert "took over" not in err
    assert not held.out.exists()
    assert audit(changed(held, out=tmp_path / "moved")).missing == 0
    assert facts_of(tmp_path / "moved").equals(undisturbed())
