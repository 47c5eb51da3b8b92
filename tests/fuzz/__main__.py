"""A long run by hand: ``python -m tests.fuzz --inputs 200000 --seed 1`` prints what became of every kind of input."""

import argparse
import sys
import tempfile
from pathlib import Path
from random import Random

import torch

from tests.fuzz.subjects import SUBJECTS
from tests.fuzz.trial import Tally, try_inputs

COLUMNS = ("inputs", "refused", "accepted", "tracebacks", "hangs", "longest s", "memory MiB")


def shares(inputs: int) -> dict[str, int]:
    """How many inputs each subject gets, at least one."""
    whole = sum(subject.share for subject in SUBJECTS)
    return {subject.name: max(1, round(inputs * subject.share / whole)) for subject in SUBJECTS}


def line(name: str, tally: Tally) -> str:
    failed = sum(tally.seen.values()) - tally.hangs
    figures = (tally.inputs, tally.refused, tally.accepted, failed, tally.hangs, f"{tally.longest:.2f}")
    return f"{name:20}" + "".join(f"{value:>12}" for value in (*figures, tally.memory >> 20))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="one subject by name")
    parser.add_argument("--again", metavar="SEED/SUBJECT/NUMBER", help="one input that failed, with its traceback")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    failures: list[str] = []
    total = Tally()
    with tempfile.TemporaryDirectory() as folder:
        if asked.again:
            name = asked.again.split("/")[1]
            subject = next(kind for kind in SUBJECTS if kind.name == name)(Path(folder))
            subject.read(subject.make(Random(asked.again)))
            return 0
        print(" " * 20 + "".join(f"{column:>12}" for column in COLUMNS), flush=True)
        for kind in SUBJECTS:
            if asked.only not in (None, kind.name):
                continue
            subject = kind(Path(folder) / kind.name.replace(" ", "-"))
            tally = try_inputs(subject, shares(asked.inputs)[kind.name], asked.seed)
            print(line(kind.name, tally), flush=True)
            found = tally.failures.items()
            failures += [f"{kind.name}: {where} ({tally.seen[where]}): {story}" for where, story in found]
            total.add(tally)
        print(line("all", total))
    for failure in failures:
        print(failure)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
