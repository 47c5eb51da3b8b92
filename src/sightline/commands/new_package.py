"""``sightline new-selector`` and ``new-backbone``: a folder of files from templates, ready to be changed."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from sightline.commands.options import with_options
from sightline.errors import SightlineError

TEMPLATES = Path(__file__).parents[1] / "assets" / "templates"
"""Of a package with one module, its test and one entry point; ``$name`` and the like stand for words."""


def class_name(name: str) -> str:
    """``very_long`` -> ``VeryLong``"""
    return "".join(part.capitalize() for part in name.split("_"))


def write_package(folder: Path, files: Mapping[str, str], words: Mapping[str, str]) -> list[Path]:
    """Writes every file from the template of that name, with ``words`` put in; nothing is overwritten."""
    for file in files:
        if (folder / file).exists():
            raise SightlineError(f"{folder / file} exists already; name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            text = Template((TEMPLATES / f"{template}.txt").read_text(encoding="utf-8")).substitute(words)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise SightlineError(f"cannot write to {folder}: {error.strerror}") from None
    return [folder / file for file in files]


@with_options
def new_selector(name: Annotated[str, typer.Argument()], out: Path | None = None) -> None:
    """Write a new pruning method with a test: a small package that ``pip install -e`` makes known to Sightline."""
    # A name as arms write it: My-Method and MyMethod become my_method; one that is so already stays.
    name = re.sub(r"[-\s]+", "_", re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name.strip())).lower()
    folder = out if out is not None else Path(f"sightline-{name.replace('_', '-')}")
    for path in write_selector(name, folder):
        print(f"wrote {path}")
    print(f"next: pip install -e {folder}, then sightline run ... --arm {name}:0.3")


def write_selector(name: str, folder: Path) -> list[Path]:
    """The three files."""
    _refuse_selector_name(name)
    words = {"name": name, "dashed": name.replace("_", "-"), "module": name, "kind": class_name(name)}
    files = {f"{name}.py": "selector.py", f"test_{name}.py": "test_selector.py", "pyproject.toml": "pyproject.toml"}
    return write_package(folder, files, {**words, "group": "selectors"})


def _refuse_selector_name(name: str) -> None:
    from sightline.selectors import SELECTORS

    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) is None or keyword.iskeyword(name):
        raise SightlineError(f"'{name}' cannot name a selector; use lower-case words joined by underscores")
    if name in SELECTORS:
        raise SightlineError(f"selector '{name}' exists already; choose another name")
    if name in sys.stdlib_module_names or name in ("sightline", "torch", "numpy", "transformers"):
        raise SightlineError(f"a module called '{name}' exists already and would be hidden; choose another name")


@with_options
def new_backbone(name: Annotated[str, typer.Argument()], out: Path | None = None) -> None:
    """Write a new architecture with a test: a small package that ``pip install -e`` makes known to Sightline.

    Try ``sightline doctor --model CHECKPOINT`` first: most image-text types of transformers need no class of their own.
    """
    folder = out if out is not None else Path(f"sightline-{dashed(name)}")
    for path in write_backbone(name, folder):
        print(f"wrote {path}")
    print(f"next: pip install -e {folder}, pytest {folder}, then sightline doctor --model CHECKPOINT")


def write_backbone(name: str, folder: Path) -> list[Path]:
    """The four files."""
    _refuse_model_type(name)
    plain = re.sub("[.-]", "_", name)
    module = f"sightline_{plain}"
    words = {"name": name, "dashed": dashed(name), "module": module, "kind": class_name(plain), "group": "backbones"}
    files = {f"{module}.py": "backbone.py", f"test_{module}.py": "test_backbone.py"}
    return write_package(folder, {**files, "pyproject.toml": "pyproject.toml", "README.md": "README.md"}, words)


def dashed(name: str) -> str:
    return re.sub("[._]", "-", name)


def _refuse_model_type(name: str) -> None:
    from sightline.backbones import BACKBONES

    if re.fullmatch(r"[a-z][a-z0-9]*([._-][a-z0-9]+)*", name) is None:
        raise SightlineError(
            f"'{name}' cannot be a model_type; use what config.json says, lower-case words joined by underscores"
        )
    if name in BACKBONES:
        raise SightlineError(f"architecture '{name}' has a class already; see `sightline backbones {name}`")
