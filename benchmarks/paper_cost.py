"""The paper's cost tables on one GPU in eight minutes, published values beside the measured ones.

    python benchmarks/paper_cost.py [--minutes 8] [--out cards] [--probes FILE --images DIR] [--tiny]

Table S17 (LLaVA-1.5-7B, three processes over 100 probes), the GPU rows of Table 2 (batch prefill 32/100/50 with memory,
single sample) and the total speed-ups over 32 and 128 further tokens, all with random weights of the published shapes.
Without ``--probes`` the scenes that ship with Sightline are used, enlarged to 1024 x 768. EasyOCR is not run: its
published mean stands in for it. What no time is left for is left out and named; ``--tiny`` runs the same on a CPU with
tiny shapes and few probes, and says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from PIL import Image

import sightline
from sightline.cost.benchmarks.prefill import PrefillRequest
from sightline.cost.benchmarks.repeated import RepeatedRequest
from sightline.cost.benchmarks.ttft import TtftRequest
from sightline.cost.card import CostCard
from sightline.cost.measure import measure
from sightline.cost.published import DETECTOR_MS, EFFICIENCY, PREFILL_BATCH, published_key
from sightline.cost.request import ProbedRequest
from sightline.probes.probe_file import read_probes, write_probes

SCENES = Path(sightline.__file__).parent / "assets" / "scenes" / "confirmation"
SIZE = (1024, 768)
PROBES = 100
QWEN, LLAVA, INTERNVL = "qwen3-vl-8b", "llava-1.5-7b", "internvl3.5-8b"
TINY = {QWEN: "tiny-qwen3-vl", LLAVA: "tiny-llava", INTERNVL: "tiny-internvl"}
S17 = ("full", "protected:0.4", "target:0.4", "anchorprune:0.4", "scope:0.4", "coin:0.4")
TABLE_2 = {
    QWEN: ("full", "target:0.2", "target:0.3"),
    LLAVA: ("full", "protected:0.4"),
    INTERNVL: ("full", "target:0.5", "soft_evidence:0.5"),
}
TOTAL = {QWEN: ("full", "target:0.2"), LLAVA: TABLE_2[LLAVA], INTERNVL: ("full", "soft_evidence:0.5")}


@dataclass(frozen=True)
class Part:
    """One card: what to measure, how long its processes take together, and what to print of it."""

    name: str
    requests: Sequence[ProbedRequest]
    seconds: float
    """On an H200, start-up included."""
    columns: tuple[str, ...]


TIMED = ("keep", "vision", "select", "language", "total", "speedup", "published_ms", "published_speedup")
BATCHED = ("batch", "length", "ms", "speedup", "published_speedup", "memory_saved", "published_saved")


def parts(material: dict[str, Any]) -> Iterator[Part]:
    """The most wanted first."""
    repeated = RepeatedRequest(
        kind="repeated", config=LLAVA, arms=S17, dtype="float16", probes_per_process=PROBES, **material
    )
    yield Part("s17-llava", [repeated.model_copy(update={"repetition": number}) for number in range(3)], 240, TIMED)
    for model, arms in TABLE_2.items():
        batched = PrefillRequest(
            kind="prefill", config=model, arms=arms, batch=PREFILL_BATCH[model], repeats=5, warm_up=1, **material
        )
        yield Part(f"prefill-{model}", [batched], 35, BATCHED)
    for model, arms in TOTAL.items():
        added = 0.0 if model == QWEN else DETECTOR_MS
        decoded = TtftRequest(
            kind="ttft", config=model, arms=arms, decode=(32,), repeats=5, warm_up=2, detector_ms=added, **material
        )
        yield Part(f"total-{model}", [decoded], 40, ("ms", "speedup"))
    for model in (QWEN, INTERNVL):
        single = RepeatedRequest(kind="repeated", config=model, arms=TABLE_2[model], probes_per_process=30, **material)
        yield Part(f"single-{model}", [single], 50, ("keep", "total", "speedup", "published_speedup"))


def tiny(part: Part) -> Part:
    """The same on a CPU."""
    shapes = [
        request.model_copy(update={"config": TINY[request.config], "device": "cpu", "dtype": "auto"})
        for request in part.requests
    ]
    few: list[ProbedRequest] = []
    for request in shapes:
        match request:
            case RepeatedRequest():
                few.append(request.model_copy(update={"probes_per_process": 4, "drop": 1}))
            case PrefillRequest():
                few.append(request.model_copy(update={"batch": 2}))
            case _:
                few.append(request.model_copy(update={"repeats": 2, "warm_up": 1}))
    return replace(part, requests=few)


def enlarged_scenes(folder: Path) -> dict[str, Any]:
    """Probe file and images of the shipped scenes, as large as photographs of TextOCR are."""
    probes = read_probes(SCENES / "probes.jsonl").probes[:PROBES]
    (folder / "images").mkdir()
    for name in dict.fromkeys(probe.image for probe in probes):
        with Image.open(SCENES / "images" / name) as scene:
            scene.convert("RGB").resize(SIZE, Image.Resampling.LANCZOS).save(folder / "images" / name, quality=90)
    write_probes(folder / "probes.jsonl", probes)
    return {"probe_file": str(folder / "probes.jsonl"), "image_folder": str(folder / "images")}


def show(part: Part, card: CostCard) -> None:
    facts = dict(card.facts())
    print(f"\n{part.name}: {facts['device']}, {facts['dtype']}, attention {card.results[0]['request']['attention']}")
    _print_table(("arm", *part.columns), card.records())
    for table in card.further_tables():
        print(f"{table.title}:")
        _print_table([column.key for column in table.columns if column.key != "execution"], table.lines)


def _print_table(keys: Sequence[str], lines: Sequence[Any]) -> None:
    known = [key for key in keys if any(line.get(key) is not None for line in lines)]
    cells = [known, *([_text(line.get(key)) for key in known] for line in lines)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(known))]
    for row in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)), flush=True)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)


def show_table_2(cards: dict[str, CostCard]) -> None:
    """Setting by setting, from whichever cards there are: single sample, batch prefill, memory."""
    lines = []
    for (model, (selector, share)), printed in EFFICIENCY.items():
        key = (model, (selector, share))
        single = _measured(cards.get("s17-llava" if model == LLAVA else f"single-{model}"), key)
        prefill = _measured(cards.get(f"prefill-{model}"), key)
        lines.append(
            {
                "setting": f"{model} {selector}:{share}",
                "single": single.get("speedup"), "published": printed.single,
                "prefill": prefill.get("speedup"), "published ": printed.prefill,
                "memory": prefill.get("memory_saved"), "published  ": printed.memory_saved,
            }
        )  # fmt: skip
    print("\nTable 2, measured and published:")
    _print_table(list(lines[0]), lines)


def _measured(card: CostCard | None, key: tuple[str, tuple[str, float]]) -> dict[str, Any]:
    records = card.records() if card else []
    return next((each for each in records if published_key(each["model"], each["arm"]) == key), {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="nothing is begun that would end later")
    parser.add_argument("--out", type=Path, help="folder for the cost cards")
    parser.add_argument("--probes", help="probe file instead of the shipped scenes")
    parser.add_argument("--images", help="folder of its images")
    parser.add_argument("--tiny", action="store_true", help="tiny shapes on a CPU")
    options = parser.parse_args()
    began = time.monotonic()
    cards: dict[str, CostCard] = {}
    with tempfile.TemporaryDirectory() as place:
        own = {"probe_file": options.probes, "image_folder": options.images}
        material = own if options.probes else enlarged_scenes(Path(place))
        for part in map(tiny, parts(material)) if options.tiny else parts(material):
            left = options.minutes * 60 - (time.monotonic() - began)
            if left < part.seconds:
                print(f"\n{part.name}: left out, {left:.0f} s are left and it takes about {part.seconds:.0f}")
                continue
            started = time.monotonic()
            results = []
            for request in part.requests:
                results.append(measure(request))
                cards[part.name] = CostCard(results)
                if options.out:
                    cards[part.name].write(options.out / f"{part.name}.json")
            show(part, cards[part.name])
            print(f"({time.monotonic() - started:.0f} s)", flush=True)
    show_table_2(cards)


if __name__ == "__main__":
    main()
