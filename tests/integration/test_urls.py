"""Probes, images and run folder in an object store: the rows of a local run, whatever happens on the way."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from sightline import AuditConfig, Run, SightlineError, audit, load_run, read_probes
from sightline.places.listing import place
from sightline.report.build import build_report
from sightline.store.leases import FolderAccess
from tests.integration.conftest import command, facts, make_config
from tests.object_store import Store
from tests.warm_python import Popen, run_python

ARMS = ["full", "target:0.3", "random:0.3"]
PLAIN = "from sightline.cli import main; main()"
"""The command line as it is."""
Rows = Callable[[int], pd.DataFrame]


@pytest.fixture
def on_s3(config: Any, data: Path, mini_probes: Path, bucket: str) -> Any:
    """``on_s3("llava", limit=2)``: a configuration whose probes, images and run folder are all in the bucket."""
    upload(mini_probes, f"{bucket}/probes.jsonl")
    upload(data / "mini_textocr", f"{bucket}/data/images")

    there = {"probes": f"{bucket}/probes.jsonl", "images": f"{bucket}/data/images", "out": f"{bucket}/runs/first"}
    return lambda model, **changes: config(model, **{**there, "arms": ARMS, "shard_images": 1, **changes})


def upload(source: Path, url: str) -> None:
    target: Any = place(url)
    target.fs.put(str(source), target.path, recursive=source.is_dir())


def download(url: Any, target: Path) -> Path:
    """The objects below a URL as files."""
    root: Any = place(str(url))
    for name in root.fs.find(root.path):
        file = target / name.removeprefix(f"{root.path}/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(root.fs.cat_file(name))
    return target


def words(settings: AuditConfig) -> list[str]:
    """What follows ``python``: the command line with these settings."""
    return ["-c", PLAIN, *command(settings)[2:]]


def finished(settings: AuditConfig) -> Run:
    """What the command line leaves when all goes well."""
    done = run_python(words(settings))
    assert done.returncode == 0, done.stderr
    run = load_run(settings.out)
    assert run.missing == 0
    return run


@pytest.fixture(scope="module")
def locally(data: Path, mini_probes: Path, tmp_path_factory: pytest.TempPathFactory) -> Rows:
    """The rows about the first images of an undisturbed run on this machine."""
    out = tmp_path_factory.mktemp("local") / "run"
    rows = facts(audit(make_config(data, mini_probes, out, "llava", arms=ARMS, shard_images=1, limit=4)).frame())
    images = list(dict.fromkeys(probe.image_id for probe in read_probes(mini_probes).probes))
    return lambda limit: rows[rows["image_id"].isin(images[:limit])].reset_index(drop=True)


def test_a_run_in_a_store_has_the_rows_and_the_report_of_a_local_one(
    locally: Rows, on_s3: Any, tmp_path: Path, object_store: Store
) -> None:
    settings = on_s3("llava", limit=2)
    run = finished(settings)
    pd.testing.assert_frame_equal(facts(run.frame()), locally(2))
    copied = download(settings.out, tmp_path / "copy" / "first")
    assert load_run(copied).rows.equals(run.rows), "to the byte, timings and all"
    secret = object_store.environment["AWS_SECRET_ACCESS_KEY"].encode()
    assert secret not in (copied / "run.json").read_bytes()
    reports = [build_report([path], tmp_path / f"report-{i}", draws=100) for i, path in enumerate((run.path, copied))]
    assert reports[0].read_bytes() == reports[1].read_bytes()


def test_killed_while_an_object_is_put_and_resumed_the_rows_are_those_of_an_undisturbed_run(
    locally: Rows, on_s3: Any, tmp_path: Path, object_store: Store
) -> None:
    settings = on_s3("llava", limit=3)
    object_store.hold("PUT", containing="/rows/", after=4)
    process = Popen([sys.executable, *words(settings)], stderr=subprocess.PIPE, text=True)
    object_store.wait_until_held(lambda: process.poll())
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    process.communicate()
    object_store.relent()
    assert len(settings.out.fs.glob(f"{settings.out.path}/rows/*/*.parquet")) == 4
    assert load_run(settings.out).missing == 5
    pd.testing.assert_frame_equal(facts(finished(settings).frame()), locally(3))


KEPT = "no permission (Access Denied); what is finished is kept"


@pytest.mark.parametrize(("operation", "where", "line", "reason"), [
    ("PUT", "/rows/", "error: cannot write {}/runs/first/rows/", KEPT),
    ("HEAD", "/data/images/", "error: cannot read {}/data/images/", ""),
])  # fmt: skip
def test_a_store_that_loses_its_permission_midway_costs_one_line_and_nothing_else(
    locally: Rows, on_s3: Any, bucket: str, object_store: Store, operation: str, where: str, line: str, reason: str
) -> None:
    """With ``--skip-bad-images`` a failing store must not look like a damaged image."""
    settings = on_s3("llava", limit=2, skip_bad_images=True)
    object_store.deny(operation, containing=where, after=2)
    done = run_python(words(settings))
    assert done.returncode == 2
    said = done.stderr.strip().splitlines()[-1]
    assert said.startswith(line.format(bucket))
    assert reason in said
    assert "Traceback" not in done.stderr
    object_store.relent()
    if operation == "PUT":
        assert load_run(settings.out).missing == 4
    resumed = finished(settings)
    assert not resumed.manifest.get("set_aside")
    assert resumed.bad_images == {}
    pd.testing.assert_frame_equal(facts(resumed.frame()), locally(2))


def test_processes_that_share_a_folder_in_a_store_have_the_rows_of_a_local_run(locally: Rows, on_s3: Any) -> None:
    settings = on_s3("llava", limit=4, launcher="queue")
    workers = [Popen([sys.executable, *words(settings)], stderr=subprocess.PIPE, text=True) for _ in "ab"]
    said = [worker.communicate()[1] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    run = load_run(settings.out)
    assert run.missing == 0
    assert not run.failed
    pd.testing.assert_frame_equal(facts(run.frame()), locally(4))
    left = {name.removeprefix(f"{settings.out.path}/") for name in settings.out.fs.find(settings.out.path)}
    assert {name.split("/")[0] for name in left} == {"run.json", "probes.jsonl", "images", "rows"}, "no lease is left"
    assert len([name for name in left if name.startswith("rows/")]) == 4 * len(ARMS)


def test_a_crew_of_this_machine_works_in_a_store(locally: Rows, on_s3: Any) -> None:
    run = finished(on_s3("llava", limit=2, launcher="local", workers=2))
    pd.testing.assert_frame_equal(facts(run.frame()), locally(2))


def test_a_store_that_puts_over_what_exists_is_for_one_process(on_s3: Any, object_store: Store) -> None:
    settings = on_s3("llava", limit=2)
    object_store.ignore_conditions()
    for launcher in ("queue", "local", "ray"):
        with pytest.raises(SightlineError, match="although asked not to, so that processes cannot share work there; "):
            audit(settings.model_copy(update={"launcher": launcher}))
    assert settings.out.fs.find(settings.out.path) == [], "the trial is gone"
    with FolderAccess(settings.out, settings.worker_timeout) as driver:
        driver.lock()
        with pytest.raises(SightlineError, match=rf"^{settings.out} is being written by process \d+ on .*; wait for"):
            audit(settings)
    assert audit(settings).missing == 0


def test_in_memory_within_one_process(
    config: Any, locally: Rows, data: Path, mini_probes: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    upload(mini_probes, "memory://audited/probes.jsonl")
    upload(data / "mini_textocr", "memory://audited/images")
    there = {name: f"memory://audited/{file}" for name, file in (("probes", "probes.jsonl"), ("images", "images"))}
    settings = config("llava", limit=2, arms=ARMS, shard_images=1, **there, out="memory://audited/run")
    run = audit(settings)
    pd.testing.assert_frame_equal(facts(run.frame()), locally(2))
    amended = audit(settings.model_copy(update={"arms": [*ARMS, "center:0.3"]}))
    assert amended.missing == 0
    assert set(amended.frame()["arm"]) == {*ARMS, "center:0.3"}


def test_every_command_that_reads_a_run_says_of_a_url_what_it_says_of_a_copy(on_s3: Any, tmp_path: Path) -> None:
    settings = on_s3("llava", limit=2)
    audit(settings)
    copied, other = (download(settings.out, tmp_path / name) for name in ("first", "second"))
    probe = load_run(copied).probes[0]["id"]
    rule = "posecr(full) > 0"
    for asked in (
        ["rows", "RUN"],
        ["show", "RUN", probe, "--out", "OUT/picture.png", "--images", str(settings.images)],
        ["masks", "export", "RUN", "--arm", "target:0.3", "--out", "OUT/masks.jsonl"],
        ["report", "RUN", "--out", "OUT/report", "--draws", "100"],
        ["compare", "RUN", str(other), "--out", "OUT/comparison", "--draws", "100"],
        ["gate", "RUN", "--rule", rule, "--least-n", "1", "--draws", "100", "--junit", "OUT/gate.xml"],
    ):
        said, written = [], []
        for number, run in enumerate((str(settings.out), str(copied))):
            out = tmp_path / f"out-{number}"
            out.mkdir(exist_ok=True)
            replaced = [word.replace("OUT", str(out)) if word != "RUN" else run for word in asked]
            done = run_python(["-c", PLAIN, *replaced])
            assert done.returncode == 0, done.stderr
            said.append(done.stdout.replace("\n", "").replace(str(out), "OUT"))
            written.append({file.relative_to(out): file.read_bytes() for file in out.rglob("*.*") if file.is_file()})
        assert said[0] == said[1], asked
        assert written[0] == written[1], asked
        assert said[0] or written[0]


def test_requests_are_those_that_the_page_states(
    on_s3: Any, bucket: str, object_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of one image: what each of them costs, and what a run costs besides. The page is docs/places.md."""
    besides = {"LIST": 15, "HEAD": 3, "GET": 4, "PUT": 5, "POST": 2, "DELETE": 5}
    silent = 3600.0  # signs of life go by the clock: here there is time for none, nor to see who has joined
    monkeypatch.setattr("sightline.auditing.audit.PAUSE", silent)
    for images in (2, 5):
        monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / f"cache-{images}"))
        settings = on_s3("llava", limit=images, out=f"{bucket}/runs/{images}", worker_timeout=silent)
        object_store.counted()
        run = audit(settings)
        # The images are small: their first bytes are all of them. A shard is looked for; a lone process claims none.
        each = {"HEAD": 2, "GET": 1, "PUT": len(ARMS) + 1}
        assert object_store.counted() == {kind: n + images * each.get(kind, 0) for kind, n in besides.items()}
        assert run.missing == 0
        assert object_store.counted() == {}, "it was listed when it was opened"
        assert len(run.rows) == images * 2 * len(ARMS)
        assert object_store.counted() == {"GET": images * len(ARMS) + 1}
        again = audit(settings)
        assert again.missing == 0
        assert object_store.counted() == {"LIST": 14, "GET": 11, "HEAD": images + 2, "PUT": 5, "DELETE": 3}
