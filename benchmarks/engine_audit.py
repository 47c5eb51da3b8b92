"""The audit of OpenVINO's pruner that docs/engines.md shows: both of its variants beside arms of our own.

    python -m benchmarks.engine_audit DIR --out FOLDER [--images 20]

DIR is the shipped reader, exported and traced (``sightline engines export``, ``sightline engines trace``); where
there is none it is made, in an environment beside it. Two ordinary runs over the shipped open questions: the engine
at 0, 10, ..., 90 percent, and the library over the same checkpoint with our CDPruner, Random and ``resize`` at the
same numbers of tokens. CDPruner as published compares CLIP's spaces, which a Qwen3-VL does not have: here the
language model's own embeddings stand in for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pandas as pd

import sightline
from sightline.auditing.config import AuditConfig
from sightline.checks.demo import asset
from sightline.core.selection import QuerySpan, Selection, Selector, TokenView
from sightline.documents.reading import read_pages
from sightline.engines.export import export
from sightline.engines.openvino_trace import TRACED, trace
from sightline.probes import read_probes
from sightline.probes.probe_file import write_probes
from sightline.selectors import SELECTORS
from sightline.selectors.cdpruner import cdpruner_order, conditional_relevance
from sightline.selectors.greedy import text_dissimilarity

RATIOS = range(10, 100, 10)
VARIANTS = {"split": "", "paper": ",variant=paper"}


@SELECTORS.register("cdpruner_words")
@dataclass(frozen=True)
class CDPrunerWords(Selector):
    """Our CDPruner with the language model's embeddings in the place of CLIP's."""

    name: ClassVar[str] = "cdpruner_words"
    query: ClassVar[QuerySpan] = "question"
    like: bool = False
    """Whether tokens like the question count, as with the engine; else unlike ones, as published."""

    def select(self, view: TokenView, k: int) -> Selection:
        tokens = view.tokens.float()[None]
        unlike = text_dissimilarity(tokens, view.query.float()[None])
        relevance = conditional_relevance(-unlike if self.like else unlike)
        return Selection(cdpruner_order(tokens, relevance, k)[0].sort().values)


def runs(folder: Path, out: Path, images: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of the engine, and of the library at the same numbers of tokens; what is there is not asked again."""
    scenes = asset("scenes", "confirmation")
    probes = with_page_texts(scenes / "open_probes.jsonl", scenes / "open_images", images, out / "probes.jsonl")
    asked = {"probes": probes, "images": scenes / "open_images"}
    arms = [f"engine:pruning_ratio={ratio}{variant}" for ratio in RATIOS for variant in VARIANTS.values()]
    engine = sightline.audit(AuditConfig(model=f"openvino:{folder}", arms=["full", *arms], out=out / "engine", **asked))
    rows = engine.frame()
    counts = sorted({int(count) for count in rows["k_tokens"]} - {int(count) for count in rows["n_tokens"]})
    ways = ("cdpruner_words:{}t", "cdpruner_words:{}t:like=true", "random:{}t", "resize:{}t")
    own = [way.format(count) for count in counts for way in ways]
    library = sightline.audit(
        AuditConfig(
            model=str(asset("reader")), arms=["full", *own], out=out / "library", matched_controls=False, **asked
        )
    )
    return rows, library.frame()


def with_page_texts(probes: Path, root: Path, images: int, out: Path) -> Path:
    """The questions about the first images, with all texts of their pages: what an answer may be swapped with."""
    read = read_probes(probes)
    names = list(dict.fromkeys(probe.image for probe in read.probes))[:images]
    pages = read_pages(root, names)
    found = []
    for probe in read.probes:
        if probe.image in pages:
            texts = [[line.text, *line.box] for line in pages[probe.image].lines]
            found.append(replace(probe, extra={**probe.extra, "page": texts}))
    out.parent.mkdir(parents=True, exist_ok=True)
    write_probes(out, found, construction=read.construction)
    return out


PRUNERS = {
    "engine:pruning_ratio": "OpenVINO, split",
    "variant=paper": "OpenVINO, paper",
    "cdpruner_words": "our CDPruner, unlike",
    "like=True": "our CDPruner, like",
    "random": "Random",
    "resize": "resize",
}
"""Mark in an arm's name, the last that is there counts -> what its column is called."""


def cells(rows: pd.DataFrame) -> pd.DataFrame:
    """A line per number of tokens, a column per pruner: right answers, coverage, swapped values."""
    table: dict[str, dict[int, str]] = {name: {} for name in PRUNERS.values()}
    for (model, arm), own in rows.groupby(["model", "arm"], sort=False):
        names = [name for mark, name in PRUNERS.items() if mark in str(arm)]
        right, swapped = int(own["correct"].sum()), int(own["swapped"].fillna(False).astype(bool).sum())
        beside = [name for name in table if name.startswith("OpenVINO") == str(model).startswith("openvino")]
        for name in names[-1:] or beside:  # full is the first line of all on its side
            count = int(own["k_tokens"].iloc[0]) if "engine" in str(arm) or not names else budget(str(arm))
            table[name][count] = f"{right} · {own['ecr'].mean():.3f} · {swapped}"
    return pd.DataFrame(table).sort_index(ascending=False)


def budget(arm: str) -> int:
    return int(arm.split(":")[1].removesuffix("t"))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the reader, exported and traced")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--images", type=int, default=20)
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        export(str(asset("reader")), options.folder, options.folder.parent / ".venv-export")
    if not (options.folder / TRACED).is_dir():
        trace(options.folder)
    engine, library = runs(options.folder, options.out, options.images)
    rows = pd.concat([engine, library])
    table = cells(rows)
    print("| tokens | " + " | ".join(table.columns) + " |\n|" + "---|" * (1 + len(table.columns)))
    for count, line in zip(table.index, table.itertuples(index=False), strict=True):
        print(f"| {count} | " + " | ".join(str(cell) for cell in line) + " |")
    right = rows[rows["correct"].astype(bool)]
    print(f"\nunsupported: {int((right['ecr'] <= 1e-12).sum())} of {len(right)} right answers")
    taken = engine.groupby("arm", sort=False)["language_ms"].median().round().astype(int)
    print(f"milliseconds per answer of the engine, medians: {taken.to_dict()}")


if __name__ == "__main__":
    main()
