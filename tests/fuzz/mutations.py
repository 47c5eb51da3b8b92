"""Spoiling things: bytes, texts, JSON values and tables, always by the random numbers that are handed in."""

import json
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

DEEP = 3_000
"""Nesting beyond what Python's recursion takes."""

ODD_TEXTS = (
    "", " ", "\n", "\r", "\t", "\0", "\x1b[31mred\x1b[0m", "\u2028", "\u2029", "\x85", "\ud800", "\ufeff", "é", "’",
    "../..", "/etc/passwd", "C:\\x", "a" * 5000, "nan", "NaN", "inf", "-inf", "1e999", "9" * 400, "-1", "0", "0.0",
    "99999999999", "true", "null", "none", "[", "{", "}", "]", "(", ")", "'", '"', ",", ":", ";", "=", "+", "%", "#",
    "</script><script>alert(1)</script>", "javascript:alert(1)", "=cmd|' /C calc'!A0", "[bold]", "[/]", "{{7*7}}",
    "!!python/object/apply:os.system ['true']", "&a [*a]", "<<: *a", "$(true)", "__class__", "0x10", "1_000", "٣",
)  # fmt: skip
"""What programs stumble over."""

ODD_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2**31, 2**63, 2**64, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, 1e-320, float("nan"),
    float("inf"), float("-inf"), [], {}, [[]], [None], {"": None}, [0, 0, 0, 0], [1, 1, 0, 0], ["a", "b", "c", "d"],
    [float("nan")] * 4, [0.1, 0.1, 0.2, 10**400], *ODD_TEXTS,
)  # fmt: skip


def odd_value(random: Random) -> Any:
    """A fresh one: what is spoiled further must not spoil what comes after, let alone hold itself."""
    return deepcopy(random.choice(ODD_VALUES))


def bytes_like(data: bytes, random: Random) -> bytes:
    """One to four small damages."""
    for _ in range(random.randint(1, 4)):
        data = random.choice(_DAMAGES)(data, random)
    return data


def text_like(text: str, random: Random) -> str:
    """The same for text: pieces go, come twice, or give way to something odd."""
    for _ in range(random.randint(1, 3)):
        start = random.randint(0, len(text))
        end = min(len(text), start + random.choice((0, 1, 1, 2, 5, 20)))
        piece = random.choice(("", random.choice(ODD_TEXTS), text[start:end] * 2, text[start:end][::-1]))
        text = text[:start] + piece + text[end:]
    return text


def value_like(value: Any, random: Random) -> Any:
    """A JSON value with one to three of its parts missing, renamed, doubled or replaced."""
    whole = json.loads(json.dumps(value))
    for _ in range(random.randint(1, 3)):
        places = _places(whole)
        if not places:
            return odd_value(random)
        holder, key = random.choice(places)
        random.choice(_CHANGES)(holder, key, random)
    return whole


def json_bytes(value: Any, random: Random) -> bytes:
    """A spoiled JSON value as it might lie in a file; now and then the file is damaged as well, or nested very deep."""
    chance = random.random()
    if chance < 0.02:
        return b"[" * DEEP + b"]" * DEEP
    if chance < 0.04:
        return b'{"a":' * DEEP + b"1" + b"}" * DEEP
    if chance < 0.3:
        return bytes_like(_dumped(value), random)
    return _dumped(value_like(value, random))


def lines_bytes(rows: list[Any], random: Random) -> bytes:
    """JSON lines, one of which is spoiled; or lines that are missing, doubled, in another order."""
    lines = [_dumped(row) for row in rows]
    place = random.randrange(len(rows))
    chance = random.random()
    if chance < 0.75:
        lines[place] = json_bytes(rows[place], random)
    elif chance < 0.8:
        lines[place : place + 1] = [lines[place]] * 2
    elif chance < 0.85:
        del lines[place]
    elif chance < 0.9:
        random.shuffle(lines)
    else:
        return bytes_like(b"\n".join(lines), random)
    return b"\n".join(lines) + b"\n"


def _dumped(value: Any) -> bytes:
    return json.dumps(value).encode()


def _places(value: Any) -> list[tuple[Any, Any]]:
    """(container, key or index) of every part of a value."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ()
        for key in keys:
            found.append((holder, key))
            waiting.append(holder[key])
    return found


def _replace(holder: Any, key: Any, random: Random) -> None:
    holder[key] = odd_value(random)


def _drop(holder: Any, key: Any, random: Random) -> None:
    if key in holder if isinstance(holder, dict) else key < len(holder):
        del holder[key]


def _rename(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, dict) and key in holder:
        holder[random.choice(ODD_TEXTS)] = holder.pop(key)


def _wrap(holder: Any, key: Any, random: Random) -> None:
    holder[key] = random.choice(([holder[key]], {"a": holder[key]}, str(holder[key]), [holder[key]] * 3))


def _bend(holder: Any, key: Any, random: Random) -> None:
    """Another value of the same kind."""
    value = holder[key]
    if isinstance(value, bool) or value is None or isinstance(value, dict):
        holder[key] = not value
    elif isinstance(value, int | float):
        value = value if abs(value) < 1e15 else 1.0  # neither infinite nor beyond what a float holds
        holder[key] = random.choice((-value, value * 2, value + 1, value / 3, value * 1e9, int(value), float(value)))
    elif isinstance(value, str):
        holder[key] = text_like(value, random)
    else:
        random.shuffle(value)


_CHANGES: tuple[Callable[[Any, Any, Random], None], ...] = (_replace, _replace, _drop, _rename, _wrap, _bend, _bend)


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return b"\xff"
    place = random.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :]


def _cut(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _remove(data: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    return data[:start] + data[start + random.randint(1, 16) :]


def _insert(data: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    piece = random.choice((random.randbytes(random.randint(1, 8)), random.choice(ODD_TEXTS).encode(errors="replace")))
    return data[:start] + piece + data[start:]


def _overwrite(data: bytes, random: Random) -> bytes:
    start = random.randint(0, len(data))
    piece = random.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\x80", b"\xc3", b"\r\n"))
    return data[:start] + piece + data[start + len(piece) :]


_DAMAGES: tuple[Callable[[bytes, Random], bytes], ...] = (_flip, _flip, _flip, _cut, _remove, _insert, _overwrite)
