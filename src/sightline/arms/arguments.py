"""``key=value`` of an arm as the typed fields of what it names, a selector or a policy."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

from sightline.errors import SightlineError

LARGEST = 2.0**63
"""No argument is beyond this: it would not fit the integers that methods compute with."""


def made(kind: Any, name: str, pairs: Iterable[str], preset: Mapping[str, Any], arm: str, example: str) -> Any:
    """A ``kind``, called ``name`` in messages about ``arm``, from ``key=value`` pairs over what is preset.

    ``example`` says how a missing argument is written, up to its name.
    """
    arguments = {**preset, **typed(kind, name, pairs, arm)}
    for key, field in arguments_of(kind).items():
        if key not in arguments and _default(field) is MISSING:
            raise SightlineError(f"arm '{arm}' needs {key}: write {example}{key}={key.upper()}")
    try:
        return kind(**arguments)
    except (TypeError, ValueError) as error:
        raise SightlineError(f"arm '{arm}': {error}") from None


def typed(kind: Any, name: str, pairs: Iterable[str], arm: str) -> dict[str, Any]:
    """``key=value`` pairs as values of the types that ``kind`` declares, within their ranges."""
    known, hints = arguments_of(kind), get_type_hints(kind)
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or key not in known:
            raise SightlineError(
                f"arm '{arm}': '{pair}' is not an argument of {name}; it takes {', '.join(known) or 'none'}"
            )
        arguments[key] = _checked(_coerce(value, hints[key], key, arm), key, kind, arm)
    return arguments


def arguments_of(kind: Any) -> dict[str, Any]:
    """The fields that an arm may set, by name."""
    return {f.name: f for f in fields(cast(Any, kind)) if f.init}


def changed(made_of: Any) -> list[str]:
    """``key=value`` of every argument that differs from its default."""
    return [
        f"{key}={_print(getattr(made_of, key))}"
        for key, f in arguments_of(made_of).items()
        if getattr(made_of, key) != _default(f)
    ]


def values_of(made_of: Any) -> dict[str, Any]:
    """Every argument, defaults included."""
    return {f.name: getattr(made_of, f.name) for f in fields(cast(Any, made_of))}


def ranges_of(kind: Any) -> dict[str, tuple[float, float]]:
    """The bounds of arguments: those of the class over those of the classes that it is made from."""
    found: dict[str, tuple[float, float]] = {}
    for base in reversed(kind.__mro__):
        found |= vars(base).get("ranges", {})
    return found


def _checked(value: Any, name: str, kind: Any, arm: str) -> Any:
    """An argument's value, if it is a number within the range that its owner states; infinity and nan never are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    least, most = ranges_of(kind).get(name, (-math.inf, math.inf))
    if not abs(value) <= LARGEST:  # so said, nan is refused too
        raise SightlineError(f"arm '{arm}': {name}={value} is not a usable number")
    if not least <= value <= most:
        bounds = f"at least {least:g}" if most == math.inf else f"between {least:g} and {most:g}"
        raise SightlineError(f"arm '{arm}': {name}={value}; it must be {bounds}")
    return value


def _default(field: Any) -> Any:
    return field.default_factory() if field.default_factory is not MISSING else field.default


def _coerce(value: str, hint: Any, name: str, arm: str) -> Any:
    """An argument's text as the type that the field declares."""
    if get_origin(hint) in (Union, UnionType):
        if value.lower() == "none":
            return None
        hint = next(option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise SightlineError(f"arm '{arm}': {name}={value}; choose one of {', '.join(map(str, get_args(hint)))}")
        return value
    try:
        if hint is bool:
            return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[value.lower()]
        return hint(value) if hint in (int, float) else value
    except (KeyError, ValueError):
        raise SightlineError(f"arm '{arm}': {name}={value} is not a {hint.__name__}") from None


def _print(value: Any) -> str:
    return repr(value) if isinstance(value, float) else str(value)


def parameters(kind: Any) -> str:
    """The arguments of a selector or policy with their defaults, as they are written in an arm."""
    return ", ".join(
        f.name if _default(f) is MISSING else f"{f.name}={_print(_default(f))}" for f in fields(kind) if f.init
    )
