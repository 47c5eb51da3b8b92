"""How much of what could go wrong do some tests notice? Faults are drawn from the source, and each is put in by itself.

    python -m benchmarks.drawn_mutants tests/unit/statistics --source statistics --count 200 --out before.json
    python -m benchmarks.drawn_mutants tests/unit/statistics --source statistics --against before.json

A fault is one changed place of a function that the tests enter: a comparison, an operator, a condition, a number, an
argument or a statement that is gone, a refusal that is not raised. Functions are drawn first, so that long ones are no
more often hit than short ones. A fault is tried in a fork of a process that has collected everything, by the tests that
enter its function, quickest first. ``--against`` tries those of a file again and lists what was found then and is not
any more: a rewriting of tests keeps their power if there is nothing to list. What the clock had to end was not found
by a test, and is counted by itself. ``--blind`` names the tests that noticed no fault although all tests were asked
about each.

All of it runs in a copy of the working tree: what a fault writes where it should not is gone with the copy.

Beside it ``python -m benchmarks.mutants`` holds a chosen list of faults that quick tests must find.
"""

from __future__ import annotations

import argparse
import ast
import copy
import gc
import hashlib
import importlib
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

from tests.warm_python import REPOSITORY, SOURCES

STARTED_IN = "DRAWN_MUTANTS_STARTED_IN"
"""What is set in a copy of the working tree: the folder that ``--out`` and ``--against`` are relative to."""
SKIPPED = ("kernels/", "assets/", "__main__.py")
"""Files without faults: programs of a GPU, data, and what no test within a process runs."""
KILLED, SURVIVED, LATE = "killed", "survived", "killed by the clock"
SWAPS: dict[type[ast.AST], Callable[[], ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.Add: ast.Sub, ast.Sub: ast.Add,
    ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Div, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """The ``number``-th place of a function that could be changed, and the line that it stands in."""

    file: str
    function: str
    digest: str
    number: int
    line: str


@dataclass
class Unit:
    """A function or method outside of any other, as it was compiled and as it is written."""

    file: str
    name: str
    code: CodeType
    tree: ast.FunctionDef | ast.AsyncFunctionDef
    tests: list[int]

    @property
    def digest(self) -> str:
        """Of the function as it is written, whatever its lines are broken at: numbers of places mean it alone."""
        return hashlib.sha256(ast.dump(self.tree).encode()).hexdigest()[:16]

    @property
    def places(self) -> int:
        """How many faults there are."""
        return len(list(_places(self.tree)))


def _places(tree: ast.AST) -> Iterator[tuple[ast.AST, str, int | None, Callable[[], Any]]]:
    """(node, field, index in it, what makes its replacement) of everything that could be changed."""
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list") or isinstance(node, ast.JoinedStr):
                continue
            if isinstance(value, list):
                for i, item in enumerate(value):
                    yield from ((node, name, i, make) for make in _instead(node, name, item))
            elif isinstance(value, ast.AST):
                yield from ((node, name, None, make) for make in _instead(node, name, value))


def _instead(parent: ast.AST, field: str, node: Any) -> Iterator[Callable[[], Any]]:
    """What may stand in the place of a node: another one, or nothing (a statement that passes, no argument)."""
    if type(node) in SWAPS:
        yield SWAPS[type(node)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield lambda: node.operand
    elif isinstance(node, ast.Constant) and type(node.value) is bool:
        yield lambda: ast.Constant(not node.value)
    elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
        value: Any = node.value
        yield lambda: ast.Constant(value + 1)
    elif field == "test" and isinstance(parent, ast.If | ast.IfExp | ast.While):
        yield lambda: ast.UnaryOp(ast.Not(), node)
    elif isinstance(node, ast.Raise) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
        yield ast.Pass
    elif isinstance(node, ast.Return) and node.value is not None and not isinstance(node.value, ast.Constant):
        yield lambda: ast.Return(ast.Constant(None))
    elif isinstance(node, ast.keyword) and node.arg is not None:
        yield lambda: None


def _change(tree: ast.AST, number: int) -> int:
    """Changes a place of the tree itself; says in which line that is."""
    node, field, i, make = list(_places(tree))[number]
    new, place = make(), getattr(node, field)
    old = place if i is None else place[i]
    if i is None:
        setattr(node, field, new)
    elif new is None:
        del place[i]
    else:
        place[i] = new
    line = next((found.lineno for found in (old, node) if hasattr(found, "lineno")), 0)
    ast.fix_missing_locations(tree)
    return line


class Trial:
    """Takes the place of pytest's loop over tests."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failed: list[str] = []
        self.found: list[dict[str, Any]] = []

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        gc.unfreeze()
        units = self._units()
        print(f"{len(session.items)} tests, {len(units)} functions", flush=True)
        entered: list[tuple[float, bool, set[int]]] = self._in_fork(lambda: self._watched(session, units), 3600)
        for number, (_, passed, codes) in enumerate(entered):
            for unit in units:
                if passed and id(unit.code) in codes:
                    unit.tests.append(number)
        took = [seconds for seconds, _, _ in entered]
        broken = [item.nodeid for item, (_, passed, _) in zip(session.items, entered, strict=True) if not passed]
        print(f"{sum(took):.0f} s; fail without any fault: {broken or 'none'}", flush=True)
        reached = [unit for unit in units if unit.tests]
        blind = {number for unit in reached for number in unit.tests}
        for unit, number in self._drawn(reached, units):
            blind -= self._try(session, unit, number, took)
        outcomes = Counter(one["outcome"] for one in self.found)
        print(
            f"{outcomes[KILLED]} of {len(self.found)} found, {outcomes[LATE]} {LATE}; "
            f"{len(reached)} of {len(units)} functions are entered"
        )
        if self.options.blind:
            print("noticed nothing:", *sorted(session.items[number].nodeid for number in blind), sep="\n  ")
        return True

    def _units(self) -> list[Unit]:
        """Functions of the sources that are asked for, imported all."""
        files = {}
        for root in SOURCES:
            for path in sorted(root.rglob("*.py")):
                place = path.relative_to(root).as_posix()
                inside = place.partition("/")[2] if place.startswith("sightline/") else place
                wanted = any(inside == name or inside.startswith(f"{name}/") for name in self.options.source)
                if wanted and not any(part in place for part in SKIPPED):
                    importlib.import_module(place.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
                    files[str(path)] = place
        codes = {}
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename in files:
                codes[function.__code__.co_filename, function.__code__.co_qualname] = function.__code__
        units = []
        for file, place in files.items():
            tree = ast.parse(Path(file).read_text(encoding="utf-8"))
            for name, node in _functions(tree, ""):
                if code := codes.get((file, name)):
                    units.append(Unit(place, name, code, node, []))
        return [unit for unit in units if unit.places]

    def _watched(self, session: pytest.Session, units: list[Unit]) -> list[tuple[float, bool, set[int]]]:
        """Of every test: seconds, whether it passed, and the ids of codes that it entered."""
        wanted, seen = {id(unit.code) for unit in units}, set[int]()

        def note(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call" and id(frame.f_code) in wanted:
                seen.add(id(frame.f_code))

        found = []
        for item, following in zip(session.items, [*session.items[1:], None], strict=True):
            seen.clear()
            self.failed.clear()
            begun = time.perf_counter()
            threading.setprofile(note)
            sys.setprofile(note)
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            sys.setprofile(None)
            threading.setprofile(None)
            found.append((time.perf_counter() - begun, not self.failed, set(seen)))
        return found

    def _drawn(self, reached: list[Unit], units: list[Unit]) -> Iterator[tuple[Unit, int]]:
        if self.options.against:
            by_name = {(unit.file, unit.name): unit for unit in units}
            for one in json.loads(Path(self.options.against).read_text(encoding="utf-8")):
                unit = by_name.get((one["file"], one["function"]))
                if one["outcome"] != KILLED:
                    continue
                if unit is None or unit.digest != one["digest"]:
                    print(f"not tried, for its function is another one now: {one['file']} {one['function']}")
                    continue
                yield unit, one["number"]
            return
        draw, left = random.Random(self.options.seed), self.options.count
        queues = [(unit, draw.sample(range(unit.places), unit.places)) for unit in reached]
        while left and queues:
            draw.shuffle(queues)
            for unit, numbers in queues[:left]:
                yield unit, numbers.pop()
            left -= min(left, len(queues))
            queues = [(unit, numbers) for unit, numbers in queues if numbers]

    def _try(self, session: pytest.Session, unit: Unit, number: int, took: list[float]) -> set[int]:
        """Which tests notice this fault: the first that does, or all of them for --blind."""
        tree = copy.deepcopy(unit.tree)
        line = _change(tree, number)
        source = (SOURCES[0] if (SOURCES[0] / unit.file).exists() else SOURCES[1]) / unit.file
        text = source.read_text(encoding="utf-8")
        code = _compiled(text, str(source), unit, tree)
        order = sorted(unit.tests, key=lambda test: took[test])

        def noticed() -> list[int]:
            gc.unfreeze()
            for function in gc.get_objects():
                if type(function) is FunctionType and function.__code__ is unit.code:
                    function.__code__ = code
            by = []
            for test, following in zip(order, [*order[1:], None], strict=True):
                self.failed.clear()
                last = None if following is None else session.items[following]
                session.items[test].config.hook.pytest_runtest_protocol(item=session.items[test], nextitem=last)
                if self.failed:
                    by.append(test)
                    if not self.options.blind:
                        break
            return by

        limit = 20 + 10 * sum(took[test] for test in order)
        try:
            by = self._in_fork(noticed, min(limit, 600)) if order else []
            outcome = SURVIVED if by == [] else KILLED
        except TimeoutError:
            by, outcome = [], LATE
        fault = Fault(unit.file, unit.name, unit.digest, number, text.splitlines()[line - 1].strip() if line else "")
        names = [session.items[test].nodeid for test in by or []]
        self.found.append({**asdict(fault), "outcome": outcome, "by": names})
        if self.options.out:  # after each, so that a run that is stopped leaves what it found
            Path(self.options.out).write_text(json.dumps(self.found, indent=1), encoding="utf-8")
        if outcome != KILLED:
            print(f"{outcome} ({len(order)} tests): {fault.file}:{line} {fault.function} #{number}: {fault.line}")
        sys.stdout.flush()
        return set(by or [])

    def _in_fork(self, work: Callable[[], Any], limit_s: float) -> Any:
        """What the work returns in a fork of this process; None if it takes the process down."""
        with tempfile.TemporaryDirectory() as folder:
            answer = Path(folder, "answer")
            child = os.fork()
            if not child:
                os.setsid()
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, 1)
                os.dup2(nowhere, 2)
                try:
                    answer.write_bytes(pickle.dumps(work()))
                finally:
                    os._exit(0)
            end = time.monotonic() + limit_s
            while os.waitpid(child, os.WNOHANG)[0] == 0:
                if time.monotonic() > end:
                    os.killpg(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                    raise TimeoutError(f"not done after {limit_s:.0f} s")
                time.sleep(0.02)
            return pickle.loads(answer.read_bytes()) if answer.exists() else None


def _functions(tree: ast.AST, prefix: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """(qualified name, tree) of functions and methods, without those inside of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield prefix + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If | ast.Try | ast.With):
            yield from _functions(node, prefix)


def _compiled(text: str, path: str, unit: Unit, changed: ast.AST) -> CodeType:
    """The code of the function with the fault in it, compiled in the place where the function stands."""
    tree = ast.parse(text)

    class Put(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
            return changed if (node.lineno, node.name) == (unit.tree.lineno, unit.tree.name) else node

        visit_AsyncFunctionDef = visit_FunctionDef  # type: ignore[assignment]  # noqa: N815

    whole = compile(ast.fix_missing_locations(Put().visit(tree)), path, "exec", dont_inherit=True)
    pending = [whole]
    while pending:
        code = pending.pop()
        if code.co_qualname == unit.name and code.co_firstlineno == unit.code.co_firstlineno:
            return code
        pending += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
    raise LookupError(f"{unit.file}: {unit.name} was not compiled")


def _in_a_copy() -> int:
    """The same command in a copy of the working tree, without what git ignores."""
    listed = subprocess.check_output(["git", "ls-files", "-coz", "--exclude-standard"], cwd=REPOSITORY, text=True)
    with tempfile.TemporaryDirectory() as folder:
        for name in filter(None, listed.split("\0")):
            if (REPOSITORY / name).is_file():  # and was not removed since
                Path(folder, name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(REPOSITORY / name, Path(folder, name))
        path = os.pathsep.join([*(str(Path(folder, root.relative_to(REPOSITORY))) for root in SOURCES), folder])
        words = [sys.executable, "-m", "benchmarks.drawn_mutants", *sys.argv[1:]]
        env = {**os.environ, "PYTHONPATH": path, STARTED_IN: os.getcwd()}
        return subprocess.run(words, cwd=folder, env=env).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("tests", nargs="+", help="test files and folders; slow tests are left out")
    parser.add_argument("--source", nargs="+", required=True, help="packages or files below sightline, or beside it")
    parser.add_argument("--count", type=int, default=100, help="how many faults are drawn")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", help="JSON file of all faults and what noticed them")
    parser.add_argument("--against", help="such a file: try what was found then once more")
    parser.add_argument("--blind", action="store_true", help="ask all tests about every fault")
    options = parser.parse_args()
    if STARTED_IN not in os.environ:
        return _in_a_copy()
    for name in ("out", "against"):
        if path := getattr(options, name):
            setattr(options, name, Path(os.environ[STARTED_IN], path))
    trial = Trial(options)
    words = ["-q", "-p", "no:cacheprovider", "-m", "not slow", "--capture=fd", "--no-header", *options.tests]
    code = pytest.main(words, plugins=[trial])
    lost = sum(one["outcome"] != KILLED for one in trial.found) if options.against else 0
    if lost:
        print(f"{lost} faults are not noticed any more")
    return 1 if lost or code not in (0, pytest.ExitCode.NO_TESTS_COLLECTED) else 0


if __name__ == "__main__":
    sys.exit(main())
