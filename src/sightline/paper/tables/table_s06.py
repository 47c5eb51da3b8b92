"""Table S6: how the negatives were made, and whether a decoy stands in its image after all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Judgement, Line, Measured, PaperTable
from sightline.paper.probe_sets import CONFIRMATION, DEVELOPMENT, built_probes
from sightline.probes import audit_negatives
from sightline.probes.lexical_audit import LexicalAudit

if TYPE_CHECKING:
    from sightline.paper.study import Study

Figure = Callable[[LexicalAudit], str]


def _share(of: Callable[[LexicalAudit], int]) -> Figure:
    return lambda audit: f"{of(audit)}/{len(audit.findings)}"


def _edits(audit: LexicalAudit) -> str:
    kinds = Counter(finding.edit for finding in audit.findings)
    substituted, deleted = kinds["single_substitution"], kinds["single_deletion"]
    return f"{substituted} / {deleted} / {len(audit.findings) - substituted - deleted}"


def _line(words: str, figure: Figure, development: str, confirmation: str) -> Line:
    return Line((words,), (development, confirmation), about=figure)


LINES = (
    _line(
        "Negative probes / images",
        lambda audit: f"{len(audit.findings)} / {len({finding.probe.image_id for finding in audit.findings})}",
        "500 / 500", "500 / 500",
    ),
    _line(
        "Mean edit distance",
        lambda audit: f"{sum(finding.distance for finding in audit.findings) / len(audit.findings):.3f}",
        "1.012", "1.012",
    ),
    _line(
        "Mean edit distance over length",
        lambda audit: f"{sum(finding.relative_distance for finding in audit.findings) / len(audit.findings):.3f}",
        "0.208", "0.208",
    ),
    _line(
        "Decoy is a word of its image under any normaliser",
        _share(lambda audit: sum(bool(finding.collisions) for finding in audit.findings)), "0/500", "1/500",
    ),
    _line(
        "Decoy equals its source under any normaliser",
        _share(lambda audit: sum(bool(finding.same_as_source) for finding in audit.findings)), "0/500", "0/500",
    ),
    _line(
        "Edit distance above 2 (NFKC, casefold)",
        _share(lambda audit: sum(finding.distance > 2 for finding in audit.findings)), "0/500", "0/500",
    ),
    _line(
        "Decoy is a word of another image (NFKC, casefold)",
        _share(lambda audit: sum(finding.other_images_casefold > 0 for finding in audit.findings)),
        "47/500", "47/500",
    ),
    _line(
        "Decoy is a word of another image (letters and digits)",
        _share(lambda audit: sum(finding.other_images_alnum > 0 for finding in audit.findings)), "58/500", "64/500",
    ),
    _line("Substitution / deletion / other", _edits, "365 / 129 / 6", "376 / 118 / 6"),
)  # fmt: skip


def both_splits(study: Study, line: Line) -> list[Measured]:
    return [Measured(line.about(_audit(study, name))) for name in (DEVELOPMENT, CONFIRMATION)]


def _audit(study: Study, name: str) -> LexicalAudit:
    def make() -> LexicalAudit:
        _, found = built_probes(study, name)
        return audit_negatives(found.probes, study.source.ingest.records)

    found: LexicalAudit = study.remembered(("lexical audit", name), make)
    return found


WORD_BY_WORD = frozenset(("raw_trim", "nfc", "nfkc", "nfkc_casefold", "nfkc_casefold_nospace"))
"""Normalisers that leave punctuation alone."""


def _no_decoy_is_there(study: Study) -> Judgement:
    counts = {
        name: sum(bool(WORD_BY_WORD & set(finding.collisions)) for finding in _audit(study, name).findings)
        for name in (DEVELOPMENT, CONFIRMATION)
    }
    words = ", ".join(f"{count} of {name}" for name, count in counts.items())
    return Judgement("fails" if any(counts.values()) else "holds", words)


@PAPER_TABLES.register("S6")
class ConstructionAudit(PaperTable):
    number = "S6"
    title = "Construction of the negatives"
    about = "No model is asked: decoys are compared with the words of their own image and of all others."
    blocks = (
        Block(
            ("Audit",),
            (
                TableColumn("development", "Development", "words"),
                TableColumn("confirmation", "Confirmation", "words"),
            ),
            LINES,
            both_splits,
            requires="TextOCR's annotations alone, no images",
        ),
    )
    claims = (
        Claim(
            "No decoy is a word of its own image, case and blanks aside, in either set.",
            _no_decoy_is_there,
            answers=False,
        ),
    )
