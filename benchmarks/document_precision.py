"""Do the texts that document probes ask for stand on their pages? Against transcriptions, with one reader and with two.

    python -m benchmarks.document_precision FOLDER [--wording field] [--wrong]

FOLDER holds page images and one annotation file of them (TextOCR layout or any other that ``sightline probes formats``
lists) whose texts are what people transcribed. Positives are the answers of open questions and the texts of yes probes.
Blanks do not count; a value may stand within a transcribed line, but not within a longer number.
"""

from __future__ import annotations

import argparse
import re
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from sightline.core.probe import Probe
from sightline.documents.build import DocumentProbes, build_document_probes
from sightline.documents.reading import second_engine
from sightline.documents.settings import KINDS
from sightline.probes.annotations import load_regions


def stands(text: str, lines: Sequence[str], *, case: bool) -> bool:
    """Whether the text stands in one of the lines; a number not as part of a longer one."""
    before = r"(?<!\d)(?<!\d[.,])" if text[:1].isdigit() else ""
    after = r"(?![.,]?\d)" if text[-1:].isdigit() else ""
    signs = r"\s*".join(re.escape(sign) for sign in text if not sign.isspace())
    pattern = re.compile(before + signs + after, 0 if case else re.IGNORECASE)
    return any(pattern.search(line) for line in lines)


def share(probes: Sequence[Probe], truth: dict[str, list[str]], *, case: bool) -> str:
    if not probes:
        return "-"
    right = sum(stands(probe.source_text, truth[Path(probe.image).stem], case=case) for probe in probes)
    return f"{right / len(probes):.3f}"


def table(name: str, built: DocumentProbes, truth: dict[str, list[str]], seconds: float) -> str:
    counts = built.counts
    opened = [probe for probe in built.probes if probe.is_open]
    yes = [probe for probe in built.probes if probe.label == "yes"]
    labels = [probe for probe in opened if probe.extra["relation"] != "in_row"]
    named = sum(stands(probe.target_text, truth[Path(probe.image).stem], case=False) for probe in labels)
    absent = [probe for probe in built.probes if probe.label == "no"]
    false = sum(stands(probe.target_text, truth[Path(probe.image).stem], case=False) for probe in absent)
    lines = [
        f"{name}: {counts['texts']} texts count, {counts['texts_dropped']} do not; {seconds:.1f} s",
        f"  {len(built.probes)} probes from {counts['pages_with_questions']} of {counts['pages']} pages, "
        f"{len(opened) / counts['pages']:.2f} fields a page",
        f"  {'positives':<14}{'n':>5}{'case folded':>13}{'case kept':>11}",
    ]
    groups = {"open": opened, "yes": yes, "all": [*opened, *yes]}
    groups |= {f"  {kind}": [probe for probe in opened + yes if probe.kind == kind] for kind in KINDS}
    for group, probes in groups.items():
        folded, kept = (share(probes, truth, case=case) for case in (False, True))
        lines.append(f"  {group:<14}{len(probes):>5}{folded:>13}{kept:>11}")
    lines.append(
        f"  labels that stand on their page {named} of {len(labels)}; negatives that do {false} of {len(absent)}"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--wording", choices=("place", "field"), default="place")
    parser.add_argument("--fields", type=int, default=6, help="fields a page; 0 for all")
    parser.add_argument("--wrong", action="store_true", help="name every positive that does not stand on its page")
    asked = parser.parse_args()
    (annotations,) = asked.folder.glob("*.json")
    truth = {Path(record.image).stem: record.texts for record in load_regions(annotations).records}
    for second in dict.fromkeys((None, second_engine())):
        with tempfile.TemporaryDirectory() as folder:
            started = time.perf_counter()
            built = build_document_probes(
                asked.folder, Path(folder), second=second, wording=asked.wording, fields_per_page=asked.fields
            )
            seconds = time.perf_counter() - started
        print(table("rapidocr" if second is None else f"rapidocr and {second}", built, truth, seconds))
        for probe in built.probes if asked.wrong else ():
            lines = truth[Path(probe.image).stem]
            if probe.label != "no" and not stands(probe.source_text, lines, case=False):
                print(f"    {probe.id}: {probe.target_text!r} -> {probe.source_text!r}")


if __name__ == "__main__":
    main()
