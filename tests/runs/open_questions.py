"""A synthetic run over open questions: pages of labels and values, several regions with roles, answers in words.

Nothing here runs a model. Whether an arm reads a value depends on how much of it was kept, and luck is drawn once per
question for all arms, so that answers are lost with their evidence, survive without it, change and come back.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.answering.scorers.spoken import OpenAnswer, Utterance
from sightline.core.probe import TWIN, Box, Probe
from sightline.core.row import Column
from sightline.core.selection import Budget
from sightline.interventions import split_arm
from tests.runs.yes_no import HOSTILE, SIZE, _mask, _row, begin_run, edited_mask, geometry_of, grid_cells

ARMS = (
    "full", "target:0.2", "target:0.3", "target:0.5", "random:0.2", "random:0.3", "random:0.5", "grid:0.3",
    "resize:0.3", "anti_evidence:0.3",
)  # fmt: skip
LABELS = ("Total", "Date", "Room", "Platform", "Price", "Seats")
TASKS = ("textvqa", "docvqa", "qa")


def draw_page(rng: np.random.Generator, values: Sequence[str]) -> tuple[bytes, list[tuple[Box, Box]]]:
    """A JPEG of labels with their values, and the boxes of each label and of its value."""
    image = Image.new("RGB", SIZE, tuple(int(v) for v in rng.integers(205, 250, 3)))
    draw = ImageDraw.Draw(image)
    font = ImageFont.load_default(size=22)
    boxes = []
    for place, (label, value) in enumerate(zip(LABELS, values, strict=True)):
        x, y = int(rng.integers(30, 150)), 30 + 72 * place
        pair = []
        for text, left in ((label, x), (value[:16], x + int(rng.integers(170, 300)))):
            draw.text((left, y), text, fill=(25, 28, 40), font=font)
            x1, y1, x2, y2 = draw.textbbox((left, y), text, font=font)
            pair.append((x1 / SIZE[0], y1 / SIZE[1], min(1.0, x2 / SIZE[0]), y2 / SIZE[1]))
        boxes.append((pair[0], pair[1]))
    sink = io.BytesIO()
    image.save(sink, "JPEG", quality=70)
    return sink.getvalue(), boxes


def make_questions(images: int, rng: np.random.Generator) -> tuple[list[Probe], dict[str, bytes]]:
    """Two questions per page: the value beside a label, and which of two values is larger; one answer is hostile."""
    probes, jpegs = [], {}
    for i in range(images):
        values = [f"{int(rng.integers(100, 1000))}.{int(rng.integers(10, 100))}" for _ in LABELS]
        if i == 1:
            values[1] = HOSTILE
        jpegs[f"page{i:03d}"], boxes = draw_page(rng, values)
        one, (a, b) = i % len(LABELS), (2, 4)
        task = TASKS[i % len(TASKS)]
        larger, smaller = (a, b) if float(values[a]) > float(values[b]) else (b, a)
        pair = (boxes[larger][0], boxes[larger][1], boxes[smaller][1])
        beside, which = f"What stands beside {LABELS[one]}?", f"Which is larger, {LABELS[a]} or {LABELS[b]}?"
        for name, question, answer, regions, roles in (
            ("value", beside, values[one], boxes[one], ("field_label", "answer_value")),
            ("larger", which, LABELS[larger], pair, ("answer_value", "context", "comparison_anchor")),
        ):
            probes.append(
                Probe(
                    id=f"page{i:03d}:{name}", image=f"page{i:03d}.jpg", image_id=f"page{i:03d}", question=question,
                    label="open", target_text="", source_text="", regions=regions, kind=name,
                    answers=(answer,) * (10 if task == "textvqa" else 1), roles=roles, task=task,
                )
            )  # fmt: skip
    return probes, jpegs


def make_open_run(
    path: Path,
    *,
    images: int = 18,
    arms: Sequence[str] = ARMS,
    seed: int = 7,
    regions: bool = True,
    edit_row: Callable[[dict[str, Any]], None] = lambda row: None,
    twins: bool = False,
    own: tuple[Column, ...] = OpenAnswer.columns,
) -> Path:
    """Writes a run folder of two questions on each of ``images`` pages and returns its path.

    ``regions=False`` takes the evidence away after the answers are made; ``edit_row`` may change any row before it is
    written, and ``own`` are the columns that its rows hold of their answers. With ``twins`` every question is
    asked about the twin of its page too.
    """
    rng = np.random.default_rng(seed)
    probes, jpegs = make_questions(images, rng)
    written = [asdict(probe) | ({} if regions else {"regions": [], "roles": []}) for probe in probes]
    facts = {"probe_digest": "0e" * 32, "scorer": "open", "seed": seed}
    folder, cells = begin_run(path, arms, written, jpegs, facts), grid_cells()
    luck = rng.random(len(probes))
    for arm in arms:
        each = zip(probes, luck, strict=True)
        rows = [_answered(arm, list(arms), probe, chance, cells, seed, regions) for probe, chance in each]
        for row in list(rows) if twins else ():
            rows.append(row | {"intervention": TWIN, "view": TWIN, "image_key": f"{row['image_key']}@{TWIN}"})
        for row in rows:
            edit_row(row)
        folder.write_rows(arm, 0, rows, own)
    return path


def _answered(
    arm: str, arms: list[str], probe: Probe, luck: float, cells: np.ndarray, seed: int, regions: bool
) -> dict[str, Any]:
    """The row of one question: read right where enough was kept or luck would have it, else misread."""
    plain, edit = split_arm(arm)
    name, _, budget = plain.partition(":")
    noise = np.random.default_rng((seed, arms.index(plain), *probe.id.encode()))
    k = Budget.ratio(float(budget) if budget else 1.0).resolve(len(cells))
    value = probe.regions[probe.roles.index("answer_value")]
    kept = np.ones(len(cells), dtype=bool)
    if name == "anti_evidence":  # the first k cells that touch no region
        for x1, y1, x2, y2 in probe.regions:
            kept &= (cells[:, 2] <= x1) | (cells[:, 0] >= x2) | (cells[:, 3] <= y1) | (cells[:, 1] >= y2)
        kept[np.flatnonzero(kept)[k:]] = False
    elif name != "full":
        kept, _ = _mask("random" if name == "resize" else name, k, cells, value, noise)
    kept = kept if edit is None else edited_mask(kept, cells, value, edit)
    of_value = geometry_of((value,)).measure(kept).ecr
    chance = 0.97 if name == "full" else 0.12 + 0.8 * of_value
    said = probe.answers[0] if luck < chance else probe.answers[0][::-1][:12]
    sure = 0.05 + 0.3 * float(noise.random()) if luck < chance or luck > 0.8 else 0.9 + float(noise.random())
    row = _row(arm, probe if regions else replace(probe, regions=(), roles=()), kept, None, 0.0)
    row |= OpenAnswer().judge(probe, Utterance(said, len(said), sure), arm)
    if edit is not None:
        row |= {"intervention": str(edit), "view": edit.view, "image_key": f"{probe.image}@{edit.view}"}
    return row
