"""Run folders of which one file is not as it was written: opened, reported, judged by a gate."""

import json
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from sightline import load_run
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.rows.source import read_source
from tests.fuzz import mutations
from tests.fuzz.subjects.base import Subject
from tests.runs.yes_no import make_run


class RunFolders(Subject, name="run folders", share=5.0):
    """Everything that reads a run without a page."""

    def prepare(self) -> None:
        self.good = make_run(self.folder / "good", images=3, arms=("full", "target:0.3"))
        self.files = sorted(file for file in self.good.rglob("*") if file.is_file())
        self.tables = {file: pq.read_table(file, partitioning=None) for file in self.files if file.suffix == ".parquet"}
        self.run = self.folder / "run"
        shutil.copytree(self.good, self.run)

    def make(self, random: Random) -> tuple[str, str]:
        for file in self.files:
            there = self.run / file.relative_to(self.good)
            there.parent.mkdir(parents=True, exist_ok=True)
            if not there.exists() or there.read_bytes() != file.read_bytes():
                there.write_bytes(file.read_bytes())
        file = random.choice([one for one in self.files for _ in range(1 if one.suffix == ".parquet" else 3)])
        there = self.run / file.relative_to(self.good)
        data, how = self._spoiled(file, random)
        if data is None:
            there.unlink()
        else:
            there.write_bytes(data)
        return str(file.relative_to(self.good)), how

    def _spoiled(self, file: Path, random: Random) -> tuple[bytes | None, str]:
        if random.random() < 0.03:
            return None, "missing"
        if file.suffix in (".json", ".jsonl"):
            text = file.read_text(encoding="utf-8")
            if file.suffix == ".json":
                data = mutations.json_bytes(json.loads(text), random)
            else:
                data = mutations.lines_bytes([json.loads(line) for line in text.split("\n") if line], random)
            return data, _difference(file.read_bytes(), data)
        if random.random() < 0.4:
            return mutations.bytes_like(file.read_bytes(), random), "bytes"
        table, how = table_like(self.tables[file], random)
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink)
        return sink.getvalue().to_pybytes(), how

    def read(self, given: tuple[str, str]) -> None:
        run = load_run(self.run)
        run.frame()
        run.missing, run.unfinished, run.left_out  # noqa: B018
        for arm in run.arms:
            run.masks(arm)
        probe = run.probes[0]["id"]
        run.row(probe, run.arms[0])
        run.cells(probe)
        run.picture(probe)
        source = read_source([self.run])
        source.runs[0].scales  # noqa: B018
        run_gate(self.run, ["accuracy(full) >= 0.5", "posecr(target:0.3) >= 0.5"], draws=100, least_n=1)


class Reports(RunFolders, name="reports", share=0.5):
    """The same, as a page with pictures and tables."""

    def read(self, given: tuple[str, str]) -> None:
        out = self.folder / "report"
        shutil.rmtree(out, ignore_errors=True)
        build_report([self.run], out, draws=100, cases=2)

    def left_behind(self) -> list[str]:
        return sorted(file.name for file in (self.folder / "report").rglob("*") if file.is_file())


def table_like(table: pa.Table, random: Random) -> tuple[pa.Table, str]:
    """A table with one column missing, renamed, of another type, empty, or with odd values; or other rows."""
    place = random.randrange(table.num_columns)
    name = table.column_names[place]
    column = table.column(place).combine_chunks()
    change = random.choice(("drop", "rename", "type", "null", "values", "values", "values", "rows", "order"))
    if change == "drop":
        return table.drop_columns([name]), f"drop {name}"
    if change == "rename":
        names = [("x" if one == name else one) for one in table.column_names]
        return table.rename_columns(names), f"rename {name}"
    if change == "null":
        return table.set_column(place, name, pa.nulls(len(table), column.type)), f"null {name}"
    if change == "type":
        odd: Any = random.choice(([1] * len(table), ["x"] * len(table), [b"x"] * len(table), [[1.5]] * len(table)))
        return table.set_column(place, name, pa.array(odd)), f"type {name} {odd[:1]}"
    if change == "rows":
        taken = [random.randrange(len(table)) for _ in range(random.randint(0, 2 * len(table)))]
        return table.take(pa.array(taken, pa.int64())), f"rows {taken}"
    if change == "order":
        names = random.sample(table.column_names, table.num_columns)
        return table.select(names), "order of columns"
    values = column.to_pylist()
    odd = _odd(column.type, random)
    values[random.randrange(len(values))] = odd
    return table.set_column(place, name, pa.array(values, column.type)), f"{name} = {odd!r}"


def _odd(kind: pa.DataType, random: Random) -> Any:
    nan = np.full(4, np.nan, dtype=np.float32).tobytes()
    texts = (*mutations.ODD_TEXTS, "[[1, 2]]", "[]", "{}", '{"seed": []}')
    for is_such, values in (
        (pa.types.is_floating, (float("nan"), float("inf"), -float("inf"), 1e308, -1.0, 2.0, 0.0)),
        (pa.types.is_integer, (-1, 0, 1, 2**31 - 1, 10**6)),
        (pa.types.is_boolean, (True, False)),
        (pa.types.is_binary, (b"", b"\0", b"\xff" * 1000, nan, b"x" * 7)),
        (pa.types.is_large_binary, (b"", b"\0", b"\xff" * 1000, nan, b"x" * 7)),
        (pa.types.is_string, tuple(text.encode(errors="replace").decode() for text in texts)),
    ):
        if is_such(kind):
            return random.choice((*values, None))
    return None


def _difference(before: bytes, after: bytes) -> str:
    """Where two contents differ, to be looked at."""
    first = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), 0)
    return f"at {first}: {before[max(0, first - 40) : first + 60]!r} -> {after[max(0, first - 40) : first + 60]!r}"
