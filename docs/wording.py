"""How the generated pages put values, types and docstrings of the code into words."""

from __future__ import annotations

import html
import inspect
import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any, Literal, get_args, get_origin


def first_paragraph(thing: Any) -> str:
    """What an object says about itself in a sentence: a field for it, or the start of its docstring."""
    for name in ("description", "definition", "title"):
        if isinstance(getattr(thing, name, None), str):
            return str(getattr(thing, name))
    made_by_dataclass = is_dataclass(thing) and (thing.__doc__ or "").startswith(f"{getattr(thing, '__name__', '')}(")
    return "" if made_by_dataclass else (inspect.getdoc(thing) or "").split("\n\n")[0]


def prose(text: str) -> str:
    """Plain text on one line as Markdown: everything outside code spans loses its special meaning."""
    parts = re.split(r"(``[^`]+``|`[^`]+`)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]\\])", r"\\\1", part) for part in parts)


def code(text: str) -> str:
    """A code span that may stand in a table: a pipe would end the cell, and a backslash before it would be printed."""
    return f"`{text}`" if "|" not in text else f"<code>{html.escape(text).replace('|', '&#124;')}</code>"


def shown(value: object) -> str:
    """A declared value as a reader wants it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == "":
        return "none" if value is None else "empty"
    if isinstance(value, (frozenset, set)):
        value = sorted(map(str, value))
    if isinstance(value, (tuple, list)):
        return " ".join(code(str(item)) for item in value) or "nothing"
    if isinstance(value, Mapping):
        return " ".join(code(f"{key}: {item}") for key, item in value.items()) or "nothing"
    return code(str(value))


def type_name(kind: Any) -> str:
    if get_origin(kind) is Literal:
        return " or ".join(map(str, get_args(kind)))
    if kind is type(None):
        return "none"
    if get_args(kind) and get_origin(kind) in (list, dict, tuple):
        return f"{get_origin(kind).__name__} of {', '.join(map(type_name, get_args(kind)))}"
    if get_args(kind):
        return " or ".join(map(type_name, get_args(kind)))
    return str(getattr(kind, "__name__", kind))


class Bare(str):
    """An annotation that prints without quotes."""

    __repr__ = str.__str__


def signature(thing: Any) -> str:
    """As it would be written in the source, without ``self``."""
    found = inspect.signature(thing)
    parameters = [
        parameter.replace(annotation=_bare(parameter.annotation))
        for parameter in found.parameters.values()
        if parameter.name != "self"
    ]
    return str(found.replace(parameters=parameters, return_annotation=_bare(found.return_annotation)))


def _bare(annotation: Any) -> Any:
    return inspect.Signature.empty if annotation in (inspect.Signature.empty, None, "None") else Bare(annotation)
