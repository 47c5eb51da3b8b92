"""The audit of OpenVINO's pruner that docs/engines.md shows: both of its variants beside arms of our own.

    python -m benchmarks.engine_audit DIR --out FOLDER [--images 20]

DIR is the shipped reader, exported and traced (``sightline engines export``, ``sightline engines trace``); where
there is none it is made, in an environment beside it. Two ordinary runs over the shipped open questions: the engine
at 0, 10, ..., 90 percent, and the library over the same checkpoint with our CDPruner, Random and ``resize`` at the
same numbers of tokens; at 100 percent, what a run says. CDPruner as published compares CLIP's spaces, which a Qwen3-VL
does not have: here the language model's own embeddings stand in for both.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import pandas as pd

import sightline
from sightline.arms import parse_arm
from sightline.auditing.config import AuditConfig
from sightline.checks.demo import asset
from sightline.core.selection import QuerySpan, Selection, Selector, TokenView
from sightline.documents.reading import read_pages
from sightline.engines.openvino_folder import export
from sightline.engines.openvino_trace import TRACED, trace
from sightline.errors import SightlineError
from sightline.probes import read_probes
from sightline.probes.probe_file import write_probes
from sightline.selectors import SELECTORS
from sightline.selectors.cdpruner import cdpruner_order, conditional_relevance
from sightline.selectors.greedy import text_dissimilarity
from sightline.statistics.correct_positives import unsupported_rows
from sightline.store.shard_files import unpack_mask

SCENES = asset("scenes", "confirmation")
RATIOS = range(10, 100, 10)
VARIANTS = {"split": "engine:pruning_ratio={}", "paper": "engine:pruning_ratio={},variant=paper"}
"""Of the engine's pruner, by percent."""
OWN = {
    "our CDPruner": "cdpruner_words:{}t",
    "our CDPruner, like": "cdpruner_words:{}t:like=true",
    "Random": "random:{}t",
    "resize": "resize:{}t",
}
"""Arms of the library, by tokens."""


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


@dataclass(frozen=True)
class Audit:
    """The engine over an exported folder and the library over the reader, asked the same; nothing is asked twice."""

    folder: Path
    out: Path
    images: int

    @cached_property
    def probes(self) -> Path:
        return with_page_texts(SCENES / "open_probes.jsonl", SCENES / "open_images", self.images, self.out)

    def rows(self, run: str, model: str, arms: list[str], limit: int | None = None) -> pd.DataFrame:
        config = AuditConfig(
            model=model, arms=["full", *arms], out=self.out / run, probes=self.probes, images=SCENES / "open_images",
            matched_controls=False, limit=limit,
        )  # fmt: skip
        return sightline.audit(config).frame()

    @cached_property
    def engine(self) -> pd.DataFrame:
        arms = [arm.format(ratio) for ratio in RATIOS for arm in VARIANTS.values()]
        return self.rows("engine", f"openvino:{self.folder}", arms)

    @cached_property
    def kept(self) -> dict[int, int]:
        """Percent that was pruned -> visual tokens that were left, the same in all rows."""
        counts = {}
        for ratio in (0, *RATIOS):
            (counts[ratio],) = {int(k) for arm in VARIANTS.values() for k in of(self.engine, arm, ratio)["k_tokens"]}
        return counts

    @cached_property
    def library(self) -> pd.DataFrame:
        arms = [arm.format(count) for ratio, count in self.kept.items() if ratio for arm in OWN.values()]
        return self.rows("library", str(asset("reader")), arms)

    def all_of_it(self) -> str:
        """What a run says where the engine is told to prune everything."""
        try:
            rows = self.rows("all", f"openvino:{self.folder}", [VARIANTS["split"].format(100)], limit=1)
        except SightlineError as error:
            return str(error)
        return f"no error: {rows.groupby('arm')['k_tokens'].first().to_dict()} tokens were kept"

    def table(self) -> Iterator[str]:
        """Markdown, a line for every ratio."""
        columns = ["percent", "kept", *(name for variant in VARIANTS for name in (variant, "s")), *OWN]
        yield f"| {' | '.join(columns)} |"
        yield "|" + "---|" * len(columns)
        for ratio, count in self.kept.items():
            line = [str(ratio), str(count)]
            for arm in VARIANTS.values():
                own = of(self.engine, arm, ratio)
                line += [summary(own), f"{own['language_ms'].median() / 1e3:.2f}"]
            line += [summary(of(self.library, arm, count if ratio else 0)) for arm in OWN.values()]
            yield f"| {' | '.join(line)} |"


def of(rows: pd.DataFrame, arm: str, amount: int) -> pd.DataFrame:
    """Rows of an arm; of ``full`` where the amount is 0."""
    name = parse_arm(arm.format(amount)).text if amount else "full"
    return rows[rows["arm"] == name]


def summary(rows: pd.DataFrame) -> str:
    """Right answers, swapped ones, mean coverage of the evidence, right answers without any evidence kept."""
    swapped = int(rows["swapped"].fillna(False).astype(bool).sum())
    return f"{int(rows['correct'].sum())} · {swapped} · {rows['ecr'].mean():.3f} · {int(unsupported_rows(rows).sum())}"


def with_page_texts(probes: Path, root: Path, images: int, folder: Path) -> Path:
    """The questions about the first images, with all texts of their pages: what an answer may be swapped with."""
    read = read_probes(probes)
    names = list(dict.fromkeys(probe.image for probe in read.probes))[:images]
    pages = read_pages(root, names)
    found = []
    for probe in read.probes:
        if probe.image in pages:
            texts = [[line.text, *line.box] for line in pages[probe.image].lines]
            found.append(replace(probe, extra={**probe.extra, "page": texts}))
    folder.mkdir(parents=True, exist_ok=True)
    write_probes(folder / "probes.jsonl", found, construction=read.construction)
    return folder / "probes.jsonl"


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
    audit = Audit(options.folder, options.out, options.images)
    unpruned = of(audit.engine, "", 0)
    print("right · swapped · coverage · unsupported, of", len(unpruned))
    print(*audit.table(), sep="\n")
    cells = [
        unpack_mask(mask, int(n)).sum() for mask, n in zip(unpruned["kept_mask"], unpruned["n_tokens"], strict=True)
    ]
    print(f"traced at 0 percent: {sum(cells)} of {int(unpruned['n_tokens'].sum())} cells")
    print(f"100 percent: {audit.all_of_it()}")


if __name__ == "__main__":
    main()
