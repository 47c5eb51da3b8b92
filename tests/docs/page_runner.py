"""Executes one page from top to bottom in a folder of its own; a process each, since pages register things.

These processes, and those that a page starts for what it installs or measures, are forks that find other people's
modules imported; see ``tests.warm_python``.

``python -m tests.docs.page_runner docs/cost.md FOLDER`` does so by hand and leaves in FOLDER what the page made.
"""

import contextlib
import io
import json
import os
import shlex
import shutil
import sys
import time
import tomllib
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from subprocess import CompletedProcess
from types import ModuleType

from tests.docs import stand_ins
from tests.docs.pages import REPOSITORY, Block, Command, blocks_of
from tests.warm_python import SOURCES, run_python

RECORD = "outcomes.json"
SITE = "site"
"""Folder for packages that a page installs or spells out."""


@dataclass(frozen=True)
class Outcome:
    """What became of a block."""

    place: str
    failed: str
    """Command or Python that failed, and how it ended; empty if all went well."""
    seconds: float


class BlockFailedError(Exception):
    """A block did not do what its page says."""


Ended = CompletedProcess[str]
"""How a command ended, and what it said."""


class PageRunner:
    """The folder, the Python names and the packages that the blocks of one page share."""

    def __init__(self, page: str, folder: Path, model: str | None = None) -> None:
        self.blocks = blocks_of(page)
        self.folder, self.site = folder, folder / SITE
        self.prepared = stand_ins.PREPARED.get(page, stand_ins.Prepared())
        self.names = ModuleType("page")
        self.names.__file__ = str(folder / "page.py")  # files that the page spells out stand beside it
        self.installed = False
        """Whether the page has installed a package, which only a new process sees."""
        any_model = {"MODEL": f"{stand_ins.TINY}/{model}"} if model else {}
        for name, source in {**stand_ins.LAID_OUT, **stand_ins.OURS, **any_model}.items():
            link = folder / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(REPOSITORY / source)
        self.site.mkdir()

    def run(self) -> list[Outcome]:
        """Everything the page takes for granted, then block after block."""
        os.chdir(self.folder)
        os.environ["PYTHONPATH"] = os.pathsep.join([str(self.site), *map(str, SOURCES)])
        sys.modules["page"] = self.names
        self._prepare()
        return [self._outcome(block) for block in self.blocks]

    def _prepare(self) -> None:
        for name, content in self.prepared.files.items():
            Path(name).write_text(content, encoding="utf-8")
        for name in self.prepared.images:
            from PIL import Image

            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (1000, 800), 255).save(name)
        for command in self.prepared.commands:
            self._sightline(Command(0, command))
        exec(self.prepared.python, vars(self.names))

    def _outcome(self, block: Block) -> Outcome:
        begin, failed = time.perf_counter(), ""
        try:
            self._execute(block)
        except BlockFailedError as error:
            failed = str(error)
        except Exception:
            failed = f"{block.place}:\n{traceback.format_exc()}"
        return Outcome(block.place, failed, round(time.perf_counter() - begin, 2))

    def _execute(self, block: Block) -> None:
        if block.kind == "file":
            Path(block.name).parent.mkdir(parents=True, exist_ok=True)
            Path(block.name).write_text(block.text, encoding="utf-8")
        elif block.kind == "python":
            self._python(block)
        elif block.kind == "entry points":
            self._install_python(block)
        for command in block.commands:
            if stand_ins.reason_not_executed(block.page, command.text) is None:
                self._command(command)

    def _python(self, block: Block) -> None:
        said = io.StringIO()
        try:
            with contextlib.redirect_stdout(said):
                lines = "\n" * (block.line - 1)  # so that a traceback has the line of the page
                exec(compile(lines + block.text, block.page, "exec"), vars(self.names))
        except Exception as error:
            raise BlockFailedError(f"{block.place}: Python failed\n{traceback.format_exc()}") from error
        if block.prints and _lines(said.getvalue()) != _lines(block.prints):
            raise BlockFailedError(
                f"{block.place}: the page says it prints\n{block.prints}but it prints\n{said.getvalue()}"
            )

    def _command(self, command: Command) -> None:
        if command.text in self.prepared.between:
            exec(self.prepared.between[command.text], vars(self.names))
        words = shlex.split(command.text, comments=True)
        if words[0] == "sightline":
            self._sightline(command)
        elif words[:2] == ["pip", "install"]:
            self._install(words[-1])
        elif words[0] in ("pytest", "python"):
            words = shlex.split(stand_ins.as_executed(command.text), comments=True)
            program = ["-m", *words] if words[0] == "pytest" else words[1:]
            _checked(command, run_python(program), (0,))
        else:
            raise BlockFailedError(f"line {command.line}: nothing here executes {words[0]}: {command.text}")

    def _sightline(self, command: Command) -> None:
        executed = stand_ins.as_executed(command.text)
        words = shlex.split(executed, comments=True)[1:]
        ended = run_python(["-m", "sightline", *words]) if self.installed else _here(words)
        refused = command.shown.startswith("error: ")
        _checked(command, ended, (2,) if refused else stand_ins.exit_codes(executed))
        if not command.shown or executed != command.text or stand_ins.uses_stand_in(executed):
            return
        said = ended.stderr if refused else ended.stdout
        if _lines(said) != _lines(command.shown):
            raise BlockFailedError(f"line {command.line}: the page shows\n{command.shown}but it prints\n{said}")

    def _install(self, source: str) -> None:
        """As ``pip install`` does, without a network and into the page's own folder."""
        from tests.contract.installed import install

        install(Path(source).resolve(), self.site)
        self.installed = True

    def _install_python(self, block: Block) -> None:
        """A package as pip leaves it, with these entry points, whose modules are the page's Python blocks."""
        groups = tomllib.loads(block.text)["project"]["entry-points"]
        for value in (value for points in groups.values() for value in points.values()):
            module, _, attribute = value.partition(":")
            file = self.site.joinpath(*module.split(".")).with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            ways = (f"class {attribute}(", f"def {attribute}(", f"\n{attribute} = ")
            python = (each.text for each in self.blocks if each.kind == "python")
            source = next((text for text in python if any(way in text for way in ways)), None)
            if source is None:
                raise BlockFailedError(f"an entry point names {attribute}, which no Python block of the page defines")
            file.write_text(source, encoding="utf-8")
            for data in (each for each in self.blocks if each.kind == "file"):
                file.with_name(data.name).write_text(data.text, encoding="utf-8")
        metadata = self.site / f"page_{block.line}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: page-{block.line}\nVersion: 1.0\n")
        with (metadata / "entry_points.txt").open("w", encoding="utf-8") as listed:
            for group, points in groups.items():
                listed.write("\n".join([f"[{group}]", *(f"{name} = {value}" for name, value in points.items()), ""]))
        self.installed = True
        for group, entries in groups.items():
            script = f"from importlib.metadata import entry_points as e; [p.load() for p in e(group={group!r})]"
            ended = run_python(["-c", script])
            if ended.returncode:
                raise BlockFailedError(f"{block.place}: {', '.join(entries)} cannot be loaded\n{ended.stderr}")


def _here(words: Sequence[str]) -> Ended:
    """``sightline WORDS`` in this process, which has everything imported already."""
    from sightline.cli import main

    said, complained, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["sightline", *words]
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except Exception:
        complained.write(traceback.format_exc())
        code = 1
    finally:
        sys.argv = before
    return Ended(words, code, said.getvalue(), complained.getvalue())


def _checked(command: Command, ended: Ended, codes: tuple[int, ...]) -> None:
    if ended.returncode not in codes:
        said = (ended.stdout + ended.stderr).strip()[-3000:]
        raise BlockFailedError(f"line {command.line}: {command.text}\nended with {ended.returncode}\n{said}")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def execute(page: str, folder: Path, model: str | None = None) -> list[Outcome]:
    """What became of every block of a page, executed in a process of its own."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *map(str, SOURCES)]),
        "SIGHTLINE_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
    }
    words = ["-m", "tests.docs.page_runner", page, str(folder), *([model] if model else [])]
    done = run_python(words, env=environment, cwd=REPOSITORY)
    record = folder / RECORD
    if not record.is_file():
        raise AssertionError(f"{page} did not come to its end:\n{done.stdout}{done.stderr}")
    return [Outcome(**entry) for entry in json.loads(record.read_text(encoding="utf-8"))]


def main(page: str, folder: str, model: str | None = None) -> None:
    where = Path(folder).resolve()
    shutil.rmtree(where, ignore_errors=True)
    where.mkdir(parents=True)
    runner = PageRunner(page, where, model)
    outcomes = runner.run()
    (where / RECORD).write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1), encoding="utf-8")
    for outcome in outcomes:
        print(f"{outcome.place}  {outcome.seconds} s  {outcome.failed or 'ran'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
