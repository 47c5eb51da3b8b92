"""Do the quick tests find faults? One after the other, faults of ``mutants.yaml`` are put in, and each has to be found.

    python -m benchmarks.mutants [--only NAME ...]

A mutant is a snippet of the source and what stands there instead, and names the tests that find it. It works on a copy
of the package: the working tree is left as it is. Lines are compared without their indentation, and the file is not
named: the snippet has to occur once in the whole package. Slow tests are never run.

A mutant counts as killed when a test fails, not when nothing can be collected or imported.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.warm_python import REPOSITORY, SOURCES, run_python

FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+::.+?)(?: - |$)", re.MULTILINE)
TESTS_FAILED = 1
"""Exit code of pytest; others mean that no test could be run."""


@dataclass(frozen=True)
class Mutant:
    """A fault, and the tests that find it."""

    name: str
    before: str
    after: str
    tests: list[str]

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds ``before``; its groups are the line ends with the indentation behind each."""
        return re.compile(r"(\n *)".join(re.escape(line.strip()) for line in self.before.splitlines()))

    def place(self, sources: dict[Path, str]) -> Path:
        """The one file that holds the snippet once."""
        found = [path for path, text in sources.items() for _ in self.pattern.finditer(text)]
        if len(found) != 1:
            raise SystemExit(f"mutant {self.name}: its snippet occurs {len(found)} times in the package, not once")
        return found[0]

    def applied(self, text: str) -> str:
        """The source with the fault in it, every line indented as the one that it replaces."""
        match = self.pattern.search(text)
        assert match is not None
        lines = [line.strip() for line in self.after.splitlines()]
        ends = match.groups()
        if len(lines) != len(ends) + 1:
            raise SystemExit(f"mutant {self.name}: before and after have different numbers of lines")
        mutated = lines[0] + "".join(end + line for end, line in zip(ends, lines[1:], strict=True))
        return text[: match.start()] + mutated + text[match.end() :]


def read_mutants() -> list[Mutant]:
    entries = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return [Mutant(**entry) for entry in entries]


def read_sources() -> dict[Path, str]:
    """The text of every module of the packages, by its path below where they lie."""
    files = ((path.relative_to(root), path) for root in SOURCES for path in sorted(root.rglob("*.py")))
    return {place: path.read_text(encoding="utf-8") for place, path in files}


def run_tests(tests: list[str], package: Path) -> tuple[int, str, str]:
    """(exit code, the test that failed first, all that was printed) of quick tests on a copy of the package."""
    words = ["-m", "pytest", "-q", "-x", "-rfE", "--tb=short", "-p", "no:xdist", "-m", "not slow", *tests]
    done = run_python(words, cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"})
    failed = FAILED.search(done.stdout)
    return done.returncode, failed[1] if failed else "", done.stdout + done.stderr


def survives(mutant: Mutant, place: Path, source: str, package: Path, number: int) -> bool:
    """Puts the fault into the copy, runs the tests that should find it, and takes it out again."""
    target = package / place
    mutated = mutant.applied(source)
    compile(mutated, str(place), "exec")
    target.write_text(mutated, encoding="utf-8")
    os.utime(target, (number, number))  # bytecode is kept by time and size, and two mutants may be alike in both
    begun = time.perf_counter()
    code, failed, printed = run_tests(mutant.tests, package)
    target.write_text(source, encoding="utf-8")
    killed = code == TESTS_FAILED and failed
    print(f"{mutant.name}: {f'killed by {failed}' if killed else 'SURVIVED'} ({time.perf_counter() - begun:.1f} s)")
    if not killed and code != 0:
        print(printed, file=sys.stderr)
    return not killed


def main(only: list[str]) -> int:
    mutants = read_mutants()
    unknown = sorted(set(only) - {mutant.name for mutant in mutants})
    if unknown:
        raise SystemExit(f"there is no mutant {', '.join(unknown)}")
    chosen = sorted((mutant for mutant in mutants if not only or mutant.name in only), key=lambda each: each.tests)
    sources = read_sources()
    places = {mutant.name: mutant.place(sources) for mutant in chosen}
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "src")
        for root in SOURCES:
            shutil.copytree(root, package, dirs_exist_ok=True)
        begun = time.perf_counter()
        code, _, printed = run_tests(sorted({test for mutant in chosen for test in mutant.tests}), package)
        if code:
            raise SystemExit(f"{printed}\nthe tests fail without any mutant")
        print(f"no mutant: all tests pass ({time.perf_counter() - begun:.1f} s)", flush=True)
        left = 0
        for number, mutant in enumerate(chosen, start=1):
            place = places[mutant.name]
            left += survives(mutant, place, sources[place], package, number)
    print(f"{len(chosen) - left} of {len(chosen)} killed")
    return 1 if left else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants alone")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.exit(main(parser.parse_args().only))
