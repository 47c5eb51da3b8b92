"""``sightline paper check``: what was given, whether it is the paper's, and what a study of it will take. In seconds.

Nothing is fetched, unpacked or loaded: files are counted and measured, annotations are read once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from sightline.errors import SightlineError
from sightline_paper.data import BENCHMARKS, OpenBenchmark, SourceImages, textocr
from sightline_paper.measures import FIGURES
from sightline_paper.models import LLAVA, MODELS, named_models, stand_in
from sightline_paper.needs import merged
from sightline_paper.paper_table import PAPER_TABLES
from sightline_paper.probe_sets import CONFIRMATION, DEVELOPMENT, IMAGES, PAPER_RULES
from sightline_paper.study import PROBE_SETS, scorer_of

State = Literal["ok", "wrong", "missing", "note"]
"""wrong: something that was named does not fit; missing: nothing was named, and some lines will stay empty."""
DEVELOPMENT_IDS = Path(__file__).with_name("development_ids.txt")
"""Images of the paper's development set in order, from its published masks."""
LOCKS = {DEVELOPMENT: "e50c20d2b4de5ba6", CONFIRMATION: "0ad15992e0a18e45"}
"""Beginnings of the published digests. They are over the authors' image folder too, which is not known."""
GET_TEXTOCR = (
    "TextOCR_0.1_val.json (about 40 MB; all that table S6 needs) and train_val_images.zip (about 7 GB) from TextOCR's "
    "site"
)
GET_CLIP = "sightline convert openai/clip-vit-large-patch14-336 --out clip (its weights are pickled), and --clip clip"
ROWS_PER_S, ANSWERS_PER_S, WORKING_BYTES = 113.2, 55.5, {"yes_no": 7_545_347_072, "open": 33_204_255_744}
"""On an H200, compiled, of Qwen's shape: benchmarks/cards/h200/sweep-qwen.json and answers-qwen.json (32 tokens)."""
A800_SLOWER = 2.5
"""About how much longer an A800 takes: its 312 dense TFLOP/s in 16 bits against the H200's measured 787."""
GB = 1e9


@dataclass(frozen=True)
class Finding:
    state: State
    what: str
    words: str


def findings(
    textocr_folder: Path | None, open_data: Mapping[str, Path], models: list[str], clip: str | None
) -> Iterator[Finding]:
    """Everything that can be told, in the order in which a study would want it."""
    yield from _textocr(textocr_folder)
    for task, benchmark in BENCHMARKS.items():
        yield from _benchmark(benchmark, open_data.get(task))
    given: dict[str, str] = {}
    for text in models:
        yield from _model(text, given)
    for name, model in MODELS.items():
        if name not in given and not any(text.startswith(f"{name}=") for text in models):
            revision = f" --revision {model.revision}" if model.revision else ""
            yield Finding("missing", model.title, f"hf download {model.checkpoint}{revision}; {_size(model.bytes)}")
    yield from _clip(clip, given.get(LLAVA))
    data = {*open_data, *(["textocr"] if textocr_folder is not None else [])}
    yield from _effort(set(given), data)


# Data.


def _textocr(folder: Path | None) -> Iterator[Finding]:
    if folder is None:
        yield Finding("missing", "TextOCR", GET_TEXTOCR)
        return
    try:
        source = textocr(folder, "paper")
        records = source.ingest.records
    except SightlineError as error:
        yield Finding("wrong", "TextOCR", f"{error}; {GET_TEXTOCR}")
        return
    what = f"{source.annotations}, {_size(source.annotations.stat().st_size)}, {len(records):,} images with words"
    yield Finding("ok", "TextOCR annotations", what)
    yield _images(source)
    yield from _sets(folder)


def _images(source: SourceImages) -> Finding:
    try:
        images = source.images
    except SightlineError as error:
        return Finding("note", "TextOCR images", f"{error}; table S6 needs none")
    names = {record.image for record in source.ingest.records}
    here = {entry.name: entry for entry in images.iterdir() if entry.name in names}
    size = sum(entry.stat().st_size for entry in here.values())
    state: State = "ok" if len(here) == len(names) else "wrong"
    return Finding(state, "TextOCR images", f"{images}, {len(here):,} of {len(names):,}, {_size(size)}")


def _sets(folder: Path) -> Iterator[Finding]:
    """Whether the probe sets that would be built are the paper's: its ids in order, and its counts of the decoys."""
    published = DEVELOPMENT_IDS.read_text(encoding="utf-8").split()
    said = []
    for profile in ("paper", "artifact"):
        ids, counts = _built(textocr(folder, profile))
        if isinstance(counts, str):
            yield Finding("wrong", "probe sets", counts)
            return
        equal = sum(left == right for left, right in zip(ids, published, strict=False))
        if ids == published:
            said.append((profile, counts))
        elif profile == "artifact" and not said:
            yield Finding(
                "wrong", "development set", f"{equal} of the paper's {len(published)} images in their places: these "
                "are not the annotations that it was built from",
            )  # fmt: skip
            return
    for profile, counts in said:
        wrong = [f"{words}: {here}, published {stated}" for words, here, stated in counts if here != stated]
        state: State = "note" if wrong else "ok"
        yield Finding("ok", f"development set, {profile}", "the paper's 500 images, in its order")
        agree = f"{len(counts) - len(wrong)} of {len(counts)} published counts of both sets' decoys (S6) agree"
        yield Finding(state, f"confirmation set, {profile}", "; ".join([agree, *wrong]))
    yield Finding(
        "note", "locks", f"published digests {', '.join(f'{each}...' for each in LOCKS.values())} are over the "
        "authors' image folder too, which is not known: ids and counts are compared instead",
    )  # fmt: skip


def _built(source: SourceImages) -> tuple[list[str], list[tuple[str, str, str]] | str]:
    """Development images in order, and (what, counted, published) of both sets' decoys; why not, in words."""
    from sightline.probes import HardPairRules, audit_negatives, build_hard_pairs

    records = source.ingest.records
    sets, seen = {}, frozenset[str]()
    for name in (DEVELOPMENT, CONFIRMATION):
        rules: dict[str, Any] = {"limit_images": IMAGES, **PAPER_RULES[name]}
        found = build_hard_pairs(records, HardPairRules(**rules), exclude=seen)
        sets[name] = found.probes
        seen = frozenset(probe.image_id for probe in found.probes)
        if len(seen) < IMAGES:
            return [], f"only {len(seen)} of {IMAGES} images of the {name} set have a small word: not the whole part"
    audits = [audit_negatives(probes, records) for probes in sets.values()]
    counts = [
        (f"{line.words[0]}, {name}", FIGURES[line.about["figure"]](audit), str(stated))
        for line in PAPER_TABLES.get("S6").blocks[0].lines
        for name, audit, stated in zip(sets, audits, line.published, strict=True)
    ]
    return list(dict.fromkeys(probe.image_id for probe in sets[DEVELOPMENT])), counts


def _benchmark(benchmark: OpenBenchmark, folder: Path | None) -> Iterator[Finding]:
    if folder is None:
        yield Finding("missing", benchmark.title, benchmark.get)
        return
    found = {part: benchmark.files(folder, part) for part in benchmark.parts}
    if not any(found.values()):
        looked = ", ".join(pattern for part in found for pattern in benchmark.patterns(part))
        yield Finding("wrong", benchmark.title, f"{folder} has none of {looked}; {benchmark.get}")
    for part, files in found.items():
        if not files:
            continue
        what = benchmark.title if part == "whole" else f"{benchmark.title}, 500 questions"
        questions, expected = _questions(files), benchmark.parts[part]["questions"]
        size = _size(sum(file.stat().st_size for file in files))
        words = (
            f"{', '.join(file.name for file in files[:2])}{', ...' if len(files) > 2 else ''}, {size}, {questions:,} "
        )
        words += f"of {expected:,} questions"
        state: State = "ok" if questions == expected else "wrong"
        if files[0].suffix == ".json" and not (place := _beside(files[0], benchmark)):
            state, words = "wrong", f"{words}; images ({' or '.join(benchmark.images)}) are not beside it"
        elif files[0].suffix == ".json":
            words += f", images in {place}"
        yield Finding(state, what, words)


def _questions(files: list[Path]) -> int:
    """Rows of parquet files by their footers; of JSON its list."""
    if files[0].suffix == ".parquet":
        from pyarrow import parquet

        return sum(parquet.ParquetFile(file).metadata.num_rows for file in files)
    data = json.loads(files[0].read_text(encoding="utf-8"))
    return len(data["data"] if isinstance(data, dict) else data)


def _beside(file: Path, benchmark: OpenBenchmark) -> Path | None:
    places = (root / name for root in (file.parent, file.parent.parent) for name in benchmark.images)
    return next((place for place in places if place.is_dir()), None)


# Models.


def _model(text: str, given: dict[str, str]) -> Iterator[Finding]:
    """One checkpoint, looked for in the folder named or in the hub's cache; nothing is fetched."""
    name, equals, source = text.partition("=")
    named = name if equals and name in MODELS else ""
    source = source if named else text
    folder = _at_hand(source)
    if folder is None:
        yield Finding("wrong", source, "neither a folder nor in the hub's cache; a run would fetch it")
        return
    try:
        (model,) = named_models([f"{named}={folder}" if named else str(folder)])
        other = stand_in(str(folder), model)
    except SightlineError as error:
        yield Finding("wrong", source, str(error))
        return
    given[model] = str(folder)
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    expected = MODELS[model].bytes
    words = f"{_size(size)} of weights, {_size(expected)} expected"
    state: State = "ok" if 0.9 * expected < size < 1.2 * expected else "wrong"
    if other:
        state, words = "wrong", f"{words}; {other} stands in for it: no claim will be judged"
    yield Finding(state, MODELS[model].title, f"{source}, {words}")
    yield _revision(model, folder)


def _revision(model: str, folder: Path) -> Finding:
    """Whether the checkpoint is the paper's: a folder says so only where it lies in the hub's cache."""
    from sightline.backbones.loading import snapshot_revision

    found, wanted = snapshot_revision(folder), MODELS[model].revision
    what = f"{MODELS[model].title} revision"
    if found is None or not wanted:
        return Finding("note", what, f"{found or 'a folder of your own'}; the paper's is {wanted or 'not published'}")
    return Finding("ok" if found == wanted else "wrong", what, found if found == wanted else f"{found}, not {wanted}")


def _at_hand(source: str) -> Path | None:
    if Path(source).is_dir():
        return Path(source)
    from huggingface_hub import snapshot_download

    name, _, revision = source.partition("@")
    try:
        return Path(snapshot_download(name, revision=revision or None, local_files_only=True))
    except Exception:  # no such cache, no such name
        return None


def _clip(clip: str | None, llava: str | None) -> Iterator[Finding]:
    from sightline.backbones.clip import clip_trouble

    if clip is None:
        yield Finding("missing", "CLIP", f"AnchorPrune's lines stay empty; {GET_CLIP}")
    elif (folder := _at_hand(clip)) is None:
        yield Finding("wrong", "CLIP", f"{clip} is neither a folder nor in the hub's cache")
    elif llava is not None and (reason := clip_trouble(str(folder), llava)):
        yield Finding("wrong", "CLIP", f"{reason}; AnchorPrune's lines would stay empty")
    else:
        yield Finding("ok", "CLIP", str(clip))


# What it takes.


def _effort(models: set[str], data: set[str]) -> Iterator[Finding]:
    """Rows, hours and memory of all tables that these data and models can fill, from committed cost cards."""
    needs = merged(need for number in PAPER_TABLES for need in PAPER_TABLES.get(number).needs())
    own = [
        need
        for need in needs
        if (not models or need.model in models) and (not data or PROBE_SETS[need.probes].source in data)
    ]
    rows = {"yes_no": 0, "open": 0}
    for need in own:  # probes times arms; sets that depend on answers or people count as published
        rows["open" if scorer_of(need) == "open" else "yes_no"] += PROBE_SETS[need.probes].size * len(need.arms)
    if not any(rows.values()):
        return
    hours = max(0.1, (rows["yes_no"] / ROWS_PER_S + rows["open"] / ANSWERS_PER_S) / 3600)
    whose = "the models and data named" if models and data else "all models and data"
    yield Finding(
        "note", "time", f"{rows['yes_no']:,} yes/no rows and {rows['open']:,} answers for all tables of {whose}: about "
        f"{hours:.1f} h on an H200 (compiled, at the speed of Qwen's shape), {A800_SLOWER * hours:.0f} h on an A800 by "
        "its TFLOP/s; detectors, loading and timing tables not counted",
    )  # fmt: skip
    working = max(WORKING_BYTES[kind] for kind, count in rows.items() if count)
    most = max(MODELS[model].bytes for model in models or MODELS) + working
    yield Finding("note", "GPU memory", f"about {_size(most)}: weights, and what such runs took beside them on an H200")
    yield _gpu(most)


def _gpu(most: int) -> Finding:
    """Whether the GPU here, if there is one, has that many bytes."""
    import torch

    if not torch.cuda.is_available():
        return Finding("note", "GPU", "none here")
    found = torch.cuda.get_device_properties(0)
    state: State = "ok" if found.total_memory > most else "note"
    return Finding(state, "GPU", f"{found.name}, {_size(found.total_memory)}")


def _size(count: float) -> str:
    return f"{count / GB:.1f} GB" if count >= GB else f"{count / 1e6:.1f} MB"
