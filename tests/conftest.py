from __future__ import annotations

import collections
import gc
import os
import threading
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import hypothesis
import pytest
import torch

from tests.kept_memory import give_back_memory, keep_freed_memory, peak_memory
from tests.object_store import Store, serve
from tests.refusals import refused, write_snapshot

if TYPE_CHECKING:
    from lab.stand_ins import StandIns

__all__ = ["refused"]  # a fixture of all tests
pytest_plugins = ["tests.runs.shared"]

hypothesis.settings.register_profile("untimed", deadline=None)  # how long an example takes is the machine's affair
hypothesis.settings.load_profile("untimed")

REPOSITORY = Path(__file__).resolve().parents[1]
DATA = Path(__file__).parent / "data"
"""Everything that tests read: tiny checkpoints, a small data set, recorded answers. See the READMEs in there."""

RECEIPTS = "SIGHTLINE_RECEIPTS"
"""Environment variable that names the folder of real scans, as --receipts does."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden-dir",
        type=Path,
        metavar="DIR",
        help="folder with golden cases or recorded runs (default: tests/data/golden and tests/data/golden_e2e)",
    )
    parser.addoption(
        "--receipts",
        type=Path,
        metavar="DIR",
        help=f"folder with real scans: receipts.json in TextOCR layout and its images (default: ${RECEIPTS})",
    )
    parser.addoption("--write-refusals", action="store_true", help="write tests/refusals.yaml anew; without -n")


SLOW = (
    "browser",
    "docs/test_pages_run.py",
    "faults",
    "fuzz",
    "golden_e2e",
    "integration/test_endpoint.py",
    "integration/test_execution.py",
    "integration/test_launchers.py",
    "integration/test_named_types.py",
    "integration/test_paper.py",
    "integration/test_resume.py",
    "integration/test_urls.py",
    "lab",
    "unit/benchmarks/test_walk.py",
)
"""What starts many processes, browsers or servers, traces them or tests the lab: ``make test-slow`` runs it."""


def is_slow(path: Path) -> bool:
    place = path.as_posix().removeprefix(f"{Path(__file__).parent.as_posix()}/")
    return place.startswith(tuple(f"{name}/" for name in SLOW)) or place in SLOW


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Files without a test of the kind that is asked for are not even imported."""
    asked = config.getoption("markexpr")
    if asked == "not slow":
        return True if is_slow(collection_path) else None
    return True if asked == "slow" and collection_path.suffix == ".py" and not is_slow(collection_path) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    slow = {path for path in {item.path for item in items} if is_slow(path)}
    for item in items:
        if item.path in slow:
            item.add_marker(pytest.mark.slow)


def pytest_configure() -> None:
    keep_freed_memory()
    gc.disable()  # what is imported and collected stays: searching it for garbage takes a quarter of the time


def pytest_collection_finish() -> None:
    gc.enable()
    gc.freeze()  # and no later search looks at it


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Workers take whole files, so that what a file's fixtures build is built by one of them, not by each.

    In the order of their names, which puts the small ones of ``unit`` last: no worker waits long for the other.
    """
    from xdist.scheduler import LoadGroupScheduling

    class FileScheduling(LoadGroupScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            """Its group, if a test is marked with one; otherwise its file."""
            return str(super()._split_scope(nodeid)).partition("::")[0]

    config.option.loadscopereorder = False
    return FileScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


def most_memory(config: pytest.Config) -> float:
    """Bytes that a test process may reach: two of them, and what they start, fit on any laptop. All tests in one
    session, which nobody runs, may have more."""
    return (2 if config.getoption("markexpr") else 3) * 2**30


_peaks: dict[str, int] = {}
"""Of the test processes that have ended, by name."""


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    give_back_memory(nextitem is None or nextitem.path != item.path)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of xdist has ended."""
    _peaks[node.gateway.id] = getattr(node, "workeroutput", {}).get("peak", 0)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A session whose processes grow too large fails, although all its tests pass."""
    gc.unfreeze()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = peak_memory()
        return
    write_snapshot()
    _peaks["main"] = peak_memory()
    if torch.cuda.is_initialized():  # its libraries alone take so much
        return
    if max(_peaks.values()) > most_memory(session.config) and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def golden_dir(config: pytest.Config, name: str) -> Path:
    """The golden folder of a test suite: the one given with --golden-dir, or ``name`` in the repository."""
    chosen: Path | None = config.getoption("--golden-dir")
    return chosen or DATA / name


@pytest.fixture(scope="session", autouse=True)
def _swift() -> Iterator[None]:
    # Two test workers on two cores: one thread each is faster than two that fight, and results do not depend on it.
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda file: None)  # nothing here has to outlive a power failure
        yield


@pytest.fixture(scope="session")
def data() -> Path:
    """The folder with tiny checkpoints, data sets and recorded answers."""
    return DATA


@pytest.fixture(scope="session")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """``zoo("qwen2_vl")`` is the folder of a tiny checkpoint of that type, built when it is first asked for."""
    from tests.zoo import build

    root = tmp_path_factory.mktemp("zoo")
    return cache(lambda model_type: build(model_type, root / model_type))


@pytest.fixture(scope="session")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> StandIns:
    """TextVQA, DocVQA and OCRBench in small, in the files that their publishers ship. Tests read them only."""
    from lab.stand_ins import write_stand_ins

    return write_stand_ins(tmp_path_factory.mktemp("stand-ins"))


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many images every call of the vision tower had."""
    from sightline.backbones import Backbone

    calls: list[int] = []
    plain = Backbone.encode

    def counted(self: Backbone, batch: Any, needs: Any = ()) -> Any:
        calls.append(len(batch))
        return plain(self, batch, needs)

    monkeypatch.setattr(Backbone, "encode", counted)
    return calls


class Clock(threading.local):
    """Takes the place of ``time.perf_counter``: what passes on it is what the test says has passed.

    Every thread has its own: what a test lets pass on one does not end up in what another happens to be timing.
    """

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds

    def advance(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock that everything measures time with, under the test's hand."""
    stopped = Clock()
    monkeypatch.setattr("time.perf_counter", stopped)
    return stopped


@pytest.fixture(scope="session")
def object_store() -> Iterator[Store]:
    """An S3-compatible server in a process of its own."""
    with serve() as store:
        yield store


@pytest.fixture
def bucket(object_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket, which s3fs finds by the environment; fetched images lie in the test's own folder."""
    from s3fs import S3FileSystem

    for name, value in {**object_store.environment, "SIGHTLINE_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    name = f"bucket-{uuid4().hex[:12]}"
    S3FileSystem.clear_instance_cache()
    S3FileSystem(use_listings_cache=False).mkdir(name)
    object_store.counted()
    yield f"s3://{name}"
    object_store.relent()


@pytest.fixture(scope="session")
def receipts(request: pytest.FixtureRequest) -> Path:
    """The folder with real scans, which are not ours to distribute: tests that look at them are skipped without."""
    chosen = request.config.getoption("--receipts") or os.environ.get(RECEIPTS)
    if not chosen:
        pytest.skip(f"needs real scans: pass --receipts DIR or set {RECEIPTS}")
    folder = Path(chosen)
    if not (folder / "receipts.json").is_file():
        pytest.fail(f"{folder} holds no receipts.json: pass another folder to --receipts")
    return folder


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How large the processes were, and how many golden cases ran per method: a missing file or a silent skip shows."""
    sizes = ", ".join(f"{name} {size / 2**30:.2f} GiB" for name, size in sorted(_peaks.items()))
    most = most_memory(terminalreporter.config)
    too_large = any(size > most for size in _peaks.values())
    limit = f"{most / 2**30:.0f} GiB"
    terminalreporter.write_line(f"peak memory: {sizes}{f': more than {limit}, which fails' if too_large else ''}")
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for outcome in ("passed", "failed", "skipped"):
        for report in terminalreporter.stats.get(outcome, []):
            for key, method in getattr(report, "user_properties", []):
                if key == "golden":
                    counts[str(method)][outcome] += 1
    if counts:
        terminalreporter.section("golden cases per method")
        for method in sorted(counts):
            line = ", ".join(f"{counts[method][outcome]} {outcome}" for outcome in ("passed", "failed", "skipped"))
            terminalreporter.write_line(f"{method:40} {line}")
