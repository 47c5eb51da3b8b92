"""XML from anywhere: no document type, hence no entities to expand or to fetch; bounded in size and depth."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from sightline.errors import SightlineError
from sightline.probes.raw_text import read_bytes

MAX_XML_BYTES = 64 * 2**20
MAX_DEPTH = 100


def read_xml(path: Path) -> Element:
    """The root element. Tags and attributes lose their namespaces, of which every version of a schema has its own."""
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise SightlineError(f"{path} line {parser.CurrentLineNumber}: elements nest deeper than {MAX_DEPTH}")
        builder.start(_local(tag), {_local(name): value for name, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_local(tag))

    def refuse_doctype(*_: Any) -> None:
        raise SightlineError(
            f"{path} line {parser.CurrentLineNumber}: declares a document type, which is not read; "
            "delete the <!DOCTYPE ...> declaration"
        )

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse_doctype
    try:
        parser.Parse(read_bytes(path, MAX_XML_BYTES), True)
    except expat.ExpatError as problem:
        raise SightlineError(f"{path} line {problem.lineno}: not XML: {expat.ErrorString(problem.code)}") from None
    except (LookupError, ValueError) as problem:  # an encoding that nobody knows
        raise SightlineError(f"{path}: not XML: {problem}") from None
    return builder.close()


def below(element: Element, tag: str) -> Iterator[Element]:
    """All descendants of this name, in document order."""
    return (found for found in element.iter(tag) if found is not element)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
