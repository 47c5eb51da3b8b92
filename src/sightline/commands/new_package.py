"""What ``new-selector`` and ``new-backbone`` share: a folder of files from templates, nothing overwritten."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from string import Template

from sightline.errors import SightlineError

PROJECT = Template("""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "sightline-$dashed"
version = "0.1.0"
dependencies = ["sightline"]

[project.entry-points."sightline.$group"]
"$name" = "$module:$kind"

[tool.setuptools]
py-modules = ["$module"]
""")
"""Of a package with one module and one entry point."""


def class_name(name: str) -> str:
    """``very_long`` -> ``VeryLong``"""
    return "".join(part.capitalize() for part in name.split("_"))


def write_package(folder: Path, files: Mapping[str, Template], words: Mapping[str, str]) -> list[Path]:
    """Writes every template under its name, with ``words`` put in."""
    for file in files:
        if (folder / file).exists():
            raise SightlineError(f"{folder / file} exists already; name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            (folder / file).write_text(template.substitute(words), encoding="utf-8")
    except OSError as error:
        raise SightlineError(f"cannot write to {folder}: {error.strerror}") from None
    return [folder / file for file in files]
