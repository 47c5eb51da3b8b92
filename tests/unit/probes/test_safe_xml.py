"""XML from anywhere: nothing is expanded, nothing is fetched, nothing grows without bound."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from sightline.errors import SightlineError
from sightline.probes import data_rows as raw_text
from sightline.probes.formats import pages as safe_xml
from sightline.probes.formats.pages import below, read_xml

LAUGHS = """<!DOCTYPE alto [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]>
<alto>&c;</alto>"""


def save(folder: Path, text: str) -> Path:
    (folder / "x.xml").write_text(text, encoding="utf-8")
    return folder / "x.xml"


@pytest.mark.parametrize(
    "text",
    [
        LAUGHS,
        '<!DOCTYPE alto SYSTEM "alto.dtd"><alto/>',
        '<!DOCTYPE alto [<!ENTITY secret SYSTEM "x.xml">]><alto>&secret;</alto>',
    ],
)
def test_a_document_type_is_refused_before_any_entity_is_read(tmp_path: Path, text: str) -> None:
    with pytest.raises(SightlineError, match=r"x\.xml line 1: declares a document type.* delete the <!DOCTYPE"):
        read_xml(save(tmp_path, text))


def test_an_entity_that_nobody_declared_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match="line 1: not XML: undefined entity"):
        read_xml(save(tmp_path, "<alto>&c;</alto>"))


def test_deep_nesting_is_refused(tmp_path: Path) -> None:
    assert read_xml(save(tmp_path, "<a>" * 100 + "</a>" * 100)).tag == "a"
    with pytest.raises(SightlineError, match="nest deeper than 100"):
        read_xml(save(tmp_path, "<a>" * 101 + "</a>" * 101))


def test_a_large_file_is_refused_packed_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safe_xml, "MAX_XML_BYTES", 2**20)
    path = save(tmp_path, "<a>" + " " * 2**20 + "</a>")
    with pytest.raises(SightlineError, match=r"x\.xml: holds more than 1 MiB; split it"):
        read_xml(path)
    packed = tmp_path / "x.xml.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert packed.stat().st_size < 2**12
    with pytest.raises(SightlineError, match="holds more than 1 MiB"):
        read_xml(packed)


def test_namespaces_are_left_out_and_other_encodings_read(tmp_path: Path) -> None:
    path = tmp_path / "x.xml"
    path.write_bytes(
        '<?xml version="1.0" encoding="ISO-8859-1"?><n:a xmlns:n="u"><n:b n:c="ü"/></n:a>'.encode("latin-1")
    )
    root = read_xml(path)
    assert root.tag == "a"
    assert [each.attrib for each in below(root, "b")] == [{"c": "ü"}]


def test_an_unknown_encoding_and_a_damaged_archive_are_named(tmp_path: Path) -> None:
    with pytest.raises(SightlineError, match=r"x\.xml.*: not XML: "):
        read_xml(save(tmp_path, '<?xml version="1.0" encoding="klingon"?><a/>'))
    (tmp_path / "y.gz").write_bytes(gzip.compress(b"<a/>")[:-6])
    with pytest.raises(SightlineError, match="damaged gzip file"):
        raw_text.read_bytes(tmp_path / "y.gz")
