"""How far a probe walks: the source files that a command enters, and how the package hangs together.

    python -m benchmarks.walk [--list "task to disk"] [--write]

One image with two probes under one arm is audited by the embedded reader on a CPU; then the run is gated, reported and
bundled. A file is *entered* when a function of it is called, whatever thread calls it. Importing alone does not count:
a module is read once, by nobody who follows a probe. ``task to disk`` is the part of ``run`` from a task that was just
pulled, so that its images are prepared next, to the file of its rows. Beside that: files, lines, import cycles between
modules (imports inside functions and for types count) and modules that one other module alone imports, with those
among them that a registry loads too: plug-ins, for which that one is not the only way in. ``--write`` puts the walk of
``run``, file by file in the order in which they are entered, into docs/architecture.md.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import sightline
import sightline_paper

PACKAGE = Path(sightline.__file__).parent
BESIDE = Path(sightline_paper.__file__).parent.parent
"""Where the packages lie that stand on this one: the paper, the leaderboard, people who annotate."""
SCENES = PACKAGE / "assets" / "scenes" / "confirmation"
ARM = "target:0.3"
HEART = "leases"
"""The thread that gives signs of life now and then: when it does is no part of the way."""


TASK_TO_DISK = "task to disk"
PULLED, WRITTEN = "Worker.prepare", "RunFolder.write_rows"
"""Functions between whose first call and last return a task is on its way to the disk."""


@contextmanager
def entered() -> Iterator[tuple[dict[Path, set[str]], dict[Path, set[str]]]]:
    """Fills dictionaries with the package's files and, of each, the functions that are called meanwhile: all of them,
    and those between a pulled task and its file."""
    files: dict[Path, set[str]] = {}
    of_task: dict[Path, set[str]] = {}
    begun: list[str] = []
    written: list[str] = []
    ours = f"{PACKAGE}/"

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(ours):
            return
        if threading.current_thread().name == HEART:
            return
        name = frame.f_code.co_qualname
        if event == "return":
            written.extend([name] if name == WRITTEN else [])
        elif name != "<module>":
            place = Path(frame.f_code.co_filename).relative_to(PACKAGE)
            files.setdefault(place, set()).add(name)
            begun.extend([name] if name == PULLED else [])
            if begun and not written:
                of_task.setdefault(place, set()).add(name)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        yield files, of_task
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def commands(folder: Path) -> dict[str, list[str]]:
    """The commands whose walks are counted, in the order in which they need each other."""
    run = str(folder / "run")
    return {
        "run": [
            *("run", "--model", str(PACKAGE / "assets" / "reader"), "--device", "cpu", "--arm", ARM, "--limit", "1"),
            *("--probes", str(SCENES / "probes.jsonl"), "--images", str(SCENES / "images")),
            *("--no-matched-controls", "--out", run),
        ],
        "gate": ["gate", run, "--rule", f"pos_ecr({ARM}) >= 0.5", "--least-n", "1", "--draws", "100"],
        "report": ["report", run, "--out", str(folder / "report"), "--draws", "100"],
        "view --bundle": ["view", run, "--bundle", str(folder / "bundle")],
    }


def walks() -> dict[str, dict[Path, set[str]]]:
    """Command, or part of one -> file -> functions entered.

    All commands are called twice, and what one of the two times alone enters is left out: it belongs to imports, or to
    a moment, and not to the way.
    """
    first, second = _walked(), _walked()
    return {
        name: {file: functions for file, functions in files.items() if file in first[name]}
        for name, files in second.items()
    }


def _walked() -> dict[str, dict[Path, set[str]]]:
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, words in commands(Path(folder)).items():
            with redirect_stdout(StringIO()), entered() as (files, of_task):
                _call(words)
            found[name] = files
            if of_task:
                found[TASK_TO_DISK] = of_task
    return found


def _call(words: list[str]) -> None:
    from sightline.cli import main

    before = sys.argv
    sys.argv = ["sightline", *words]
    try:
        main()
    except SystemExit as end:
        if end.code not in (0, None) and words[0] != "gate":  # one page is too few to decide anything
            raise RuntimeError(f"sightline {' '.join(words)} ended with {end.code}") from end
    finally:
        sys.argv = before


def imports() -> dict[str, set[str]]:
    """Module -> modules of ours that it imports, anywhere in its text; those of the packages beside it too."""
    modules = {_module(path): path for root in (PACKAGE, BESIDE) for path in sorted(root.rglob("*.py"))}
    found: dict[str, set[str]] = {}
    for name, path in modules.items():
        found[name] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    found[name].add(whole if whole in modules else node.module)
            elif isinstance(node, ast.Import):
                found[name].update(alias.name for alias in node.names)
        found[name] = {other for other in found[name] if other in modules and other != name}
    return found


def _module(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent if path.is_relative_to(PACKAGE) else BESIDE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules each of which reaches all others of its group by imports (strongly connected components)."""
    order: list[str] = []
    backwards: dict[str, set[str]] = {name: set() for name in graph}
    for name, others in graph.items():
        for other in others:
            backwards[other].add(name)
    seen: set[str] = set()
    for name in graph:
        _visit(name, graph, seen, order.append)
    seen.clear()
    groups = []
    for name in reversed(order):
        group: list[str] = []
        _visit(name, backwards, seen, group.append)
        if len(group) > 1:
            groups.append(sorted(group))
    return sorted(groups)


def _visit(start: str, graph: dict[str, set[str]], seen: set[str], leave: Callable[[str], None]) -> None:
    """Depth first from ``start`` over what was not seen before; ``leave`` gets a name once all below it are done."""
    if start in seen:
        return
    seen.add(start)
    stack = [(start, iter(sorted(graph[start])))]
    while stack:
        name, others = stack[-1]
        fresh = next((other for other in others if other not in seen), None)
        if fresh is None:
            stack.pop()
            leave(name)
        else:
            seen.add(fresh)
            stack.append((fresh, iter(sorted(graph[fresh]))))


def imported_once(graph: dict[str, set[str]]) -> list[str]:
    """Modules, packages' own files aside, that exactly one other module imports."""
    importers: dict[str, int] = dict.fromkeys(graph, 0)
    for others in graph.values():
        for other in others:
            importers[other] += 1
    packages = {name.rpartition(".")[0] for name in graph}
    return [name for name, count in importers.items() if count == 1 and name not in packages]


def plug_ins() -> set[str]:
    """Modules that a registry loads by itself: they register something and lie in a package that one names."""
    found: dict[str, str] = {_module(path): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    packages = {name for text in found.values() for name in re.findall(r'group="[\w.]+", package="([\w.]+)"', text)}
    return {name for name, text in found.items() if name.rpartition(".")[0] in packages and ".register(" in text}


PAGE = Path(__file__).parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- generated: the walk -->\n", "<!-- end of generated part -->\n"


def listed() -> list[str]:
    """The files that the page names, in its order."""
    generated = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    return re.findall(r"^\d+\. `([^`]+)`", generated, re.MULTILINE)


def write_page(found: dict[str, dict[Path, set[str]]]) -> None:
    """The walk of ``run`` with the first sentence of every file, and where a task's own part of it begins and ends."""
    page, of_task = PAGE.read_text(encoding="utf-8"), found[TASK_TO_DISK]
    lines = []
    for number, file in enumerate(found["run"], 1):
        said = ast.get_docstring(ast.parse((PACKAGE / file).read_text(encoding="utf-8"))) or ""
        sentence = " ".join(said.split("\n\n")[0].split()).rstrip(".")
        lines.append(f"{number}. `{file}`{' •' if file in of_task else ''} {sentence}\n")
    before, _, rest = page.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{''.join(lines)}{rest[rest.index(END) :]}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--list", metavar="COMMAND", help="print the files that this command enters, too")
    parser.add_argument("--write", action="store_true", help="write the walk of run into docs/architecture.md, too")
    asked = parser.parse_args()
    graph = imports()
    found = walks()
    if asked.list:
        print("\n".join(str(place) for place in found[asked.list]))
    if asked.write:
        write_page(found)
    for place in (PACKAGE, *sorted(path for path in BESIDE.iterdir() if path.is_dir())):
        sources = list(place.rglob("*.py"))
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in sources)
        print(f"{place.name}: source files {len(sources)}, lines {lines}")
    once = imported_once(graph)
    print(
        f"import cycles between modules {len(cycles(graph))}, modules imported by one other {len(once)}, "
        f"{len(plug_ins().intersection(once))} of them plug-ins"
    )
    for name, files in found.items():
        print(f"{name}: {len(files)} files, {sum(map(len, files.values()))} functions")


if __name__ == "__main__":
    main()
