"""What stands in for published checkpoints, data sets and hours of work when the pages are executed. Nothing else does.

Commands and Python are executed as they are printed. ``LAID_OUT`` puts small things under the names that pages use,
``SUBSTITUTIONS`` replaces words that ask for a large model, ``LIMITS`` adds options that keep a command short, and
``PREPARED`` is what a page takes for granted. ``NOT_EXECUTED`` lists what no test can run, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.docs.pages import Block, Command, blocks_of, documented_pages

MODELS = ("qwen3vl", "llava", "internvl")
"""Tiny checkpoints that ``MODEL``, which is any model, stands for in turn."""
TINY, MINI = "tests/data/tiny", "tests/data/mini_textocr"
LAID_OUT = {
    "Qwen/Qwen3-VL-8B-Instruct": f"{TINY}/qwen3vl",
    "checkpoints/Qwen3-VL-8B-Instruct": f"{TINY}/qwen3vl",
    "llava-hf/llava-1.5-7b-hf": f"{TINY}/llava",
    "OpenGVLab/InternVL3_5-8B-HF": f"{TINY}/internvl",
    "llava-hf/llava-1.5-7b-hf@b234b804b114d9e37bb655e11cbbb5f5e971b7a9": f"{TINY}/llava",
    "openai/clip-vit-large-patch14-336": f"{TINY}/clip",
    "clip": f"{TINY}/clip",
    "TextOCR_0.1_val.json": f"{MINI}/TextOCR_mini_val.json",
    "textocr": MINI,
    "data/textocr": MINI,
    "A.json": f"{MINI}/TextOCR_mini_val.json",
    "DIR": MINI,
    "PREFIX": MINI,
    "receipts.json": f"{MINI}/TextOCR_mini_val.json",
    "receipts": MINI,
    "IMAGES": MINI,
}
"""Name in the pages -> what lies there while they are executed. A page that is about any model finds ``MODEL`` too."""
OURS = {
    "TextOCR_mini_val.json": f"{MINI}/TextOCR_mini_val.json",
    "mini_textocr": MINI,
    "src/sightline/assets": "src/sightline/assets",
    "benchmarks": "benchmarks",
    "lab": "lab",
}
"""The repository's own things under names that pages use: what pages say of them must be true to the letter."""
SUBSTITUTIONS = (
    (r"--images textocr/train_images\b", "--images textocr/train"),
    (r"--shape qwen3-vl-8b\b", "--shape tiny-qwen3-vl"),
    (r"--shape llava-1\.5-7b\b", "--shape tiny-llava"),
    (r"--batch 1,32,max\b", "--batch 1,2"),
    (r"--execution eager,compiled\b", "--execution eager"),
    (r"(bench sweep .*)--images 100 (.*)--execution compiled\b", r"\1--images 2 \2--execution eager"),
    (r"--n 144,576,2500\b", "--n 36,144"),
    (r"(paper run .*)--limit 20\b", r"\1--limit 4"),
    (r"sightline demo --all\b", "sightline demo --limit 5"),
    (r"(show \S+) PROBE\b", r"\1 textocr-f0af1d791168279c:hard-small-pos"),
)
"""(pattern, replacement) in commands: published shapes, batches and executions that are meant for a GPU, and the folder
of images as the archive unpacks it."""
QUICK = "--repeats 2 --warm-up 0 --share-process"
LIMITS = (
    (r"sightline probes build .*TextOCR_0\.1_val\.json", "--limit 4"),
    (r"sightline probes build --profile artifact ", "--limit 4"),
    (r"sightline run .*assets/scenes/confirmation", "--limit 4"),
    (r"sightline demo(?! --all)", "--limit 4"),
    (r"sightline controls build text-replacement src/", "--limit 3 --screen none"),
    (r"sightline (report|gate|compare) ", "--draws 200"),
    (r"python -m lab scenes ", "--images 6"),
    (r"sightline run .*--probes scenes/open_", "--limit 3"),
    (r"sightline run .*--part ", "--limit 2 --shard-images 1"),
    (r"sightline bench prefill ", QUICK),
    (r"sightline bench ttft ", f"{QUICK} --decode 1"),
    (r"sightline bench vision ", QUICK),
    (r"sightline bench sweep ", "--arm full --arm target:0.3 --warm-up 0 --one-sample-rows 2"),
    (r"sightline bench repeated ", "--processes 1 --probes-per-process 4 --drop 1"),
    (r"sightline bench select ", "--repeats 1 --batch 1"),
    (r"sightline paper run ", "--limit 4 --draws 200"),
    (r"sightline leaderboard ", "--limit 2 --method target --draws 100"),
    (r"sightline run .*--arm policy:", "--image-option max_pixels=50176"),
    (r"sightline policy ", "--draws 200"),
    (r"python -m benchmarks\.scale_model", "--probes 20000 --gpus 4"),
)
"""(pattern, options added to a command that it begins). A command that names the option itself keeps its own."""
EXIT_CODES = ((r"sightline (gate|policy) ", (0, 1)), (r"sightline paper check ", (0, 1)))
"""Commands that may end otherwise than with 0: models that know nothing need not pass a gate, but it must decide, and
a stand-in is not what the paper used."""


@dataclass(frozen=True)
class Prepared:
    """What a page takes for granted."""

    commands: tuple[str, ...] = ()
    """Run before its first block."""
    files: Mapping[str, str] = field(default_factory=dict)
    images: tuple[str, ...] = ()
    """Images of 1000 x 800 pixels with some drawing on them."""
    python: str = ""
    """Names that its Python speaks of."""
    between: Mapping[str, str] = field(default_factory=dict)
    """Command of the page -> Python that is executed before it."""


BUILD = "sightline probes build --annotations TextOCR_0.1_val.json --images textocr --out probes.jsonl --limit 4"
RUN = "sightline run --probes probes.jsonl --images textocr --arm full --arm target:0.3 --arm random:0.3 --model"
QWEN, LLAVA, INTERNVL = (
    "Qwen/Qwen3-VL-8B-Instruct", "llava-hf/llava-1.5-7b-hf", "OpenGVLab/InternVL3_5-8B-HF",
)  # fmt: skip
CHANGE_A_LABEL = """
from pathlib import Path
lines = Path("probes.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
changed = "textocr-f0af1d791168279c:hard-nearmiss-neg"
lines = [line.replace('"label": "no"', '"label": "yes"') if changed in line else line for line in lines]
Path("probes.jsonl").write_text("".join(lines), encoding="utf-8")
"""
A_METHOD = '''
from dataclasses import dataclass
from typing import ClassVar
import torch
from sightline import Selection, Selector
from sightline.selectors import SELECTORS

@SELECTORS.register("mine")
@dataclass(frozen=True)
class Mine(Selector):
    """Keeps the first tokens."""
    name: ClassVar[str] = "mine"
    def select(self, view, k):
        return Selection(torch.arange(k))
'''
VALID_IMAGES = """
from pathlib import Path
from sightline import load_run
images = load_run("replication/runs/qwen-confirmation").frame()["image_id"].unique()
Path("valid.txt").write_text("".join(f"{image}\\n" for image in images))
"""
DECISIONS = """
import csv
with open("replaced/screening.csv", newline="") as file:
    reviewed = [{**row, "decision": "valid_semantic_edit"} for row in csv.DictReader(file)]
with open("replaced/screening.csv", "w", newline="") as file:
    writer = csv.DictWriter(file, list(reviewed[0]))
    writer.writeheader()
    writer.writerows(reviewed)
"""
PUBLISHED = """
from pathlib import Path
from lab.stand_ins import write_stand_ins
write_stand_ins(Path("."))
"""
ANSWERED = """
from pathlib import Path
from sightline.annotate.journal import FIRST, SECOND
from sightline.annotate.campaign import open_campaign
task = open_campaign(Path("negatives"))
valid = {field.name: field.valid for field in task.kind.fields}
twice = [item.id for item in task.items if item.second]
task.journal.append_all((FIRST, "ann", item.id, valid) for item in task.items)
other = valid | {"qc_decision": "unclear"}
task.journal.append_all((SECOND, "bob", name, other if name == twice[0] else valid) for name in twice)
"""
ADJUDICATED = """
from sightline.annotate.journal import ADJUDICATION
task.journal.append_all([(ADJUDICATION, "carol", twice[0], valid)])
"""
A_STORE = """
import atexit, os
from contextlib import ExitStack
from sightline.places import place
from tests.object_store import serve
running = ExitStack()
atexit.register(running.close)
os.environ.update(running.enter_context(serve()).environment)
store = place("s3://audits/probes.jsonl").fs
store.mkdir("audits")
store.put("probes.jsonl", "audits/probes.jsonl")
store.put(os.path.realpath("textocr") + "/", "audits/textocr", recursive=True)
"""
PREPARED = {
    "docs/annotate.md": Prepared(
        (BUILD, f"{RUN} {QWEN} --out runs/qwen"),
        between={
            "sightline annotate status negatives": ANSWERED,
            "sightline annotate sign-off negatives --as dora --out valid.jsonl": ADJUDICATED,
        },
    ),
    "docs/box-sources.md": Prepared((BUILD,)),
    "docs/cost.md": Prepared((BUILD,)),
    "docs/interventions.md": Prepared((BUILD,)),
    "docs/geometry.md": Prepared(
        python="""
import numpy as np
from sightline.geometry.cells import grid_cells
cells, regions = grid_cells(24, 24), [[0.41, 0.30, 0.47, 0.33]]
kept = lineage = anchors = np.arange(100, 300)
masks = np.zeros((2, 576), bool)
masks[:, kept] = True
shares = masks[0].astype(float)
"""
    ),
    "docs/leaderboard.md": Prepared((BUILD,)),
    "docs/paper.md": Prepared(
        between={
            "sightline paper run S7 --valid valid.txt --out replication": VALID_IMAGES,
            "sightline paper run S13 --decisions replaced/screening.csv --out replication": DECISIONS,
            f"sightline paper run S20 --textvqa textvqa --docvqa docvqa --lite --models {QWEN} --out open": PUBLISHED,
        }
    ),
    "docs/python.md": Prepared(
        (BUILD,),
        python="""
import os
os.symlink("Qwen/Qwen3-VL-8B-Instruct", "checkpoint")
os.symlink("textocr", "images")
os.symlink("TextOCR_0.1_val.json", "annotations.json")
""",
    ),
    "docs/places.md": Prepared((BUILD,), python=A_STORE),
    "docs/probes.md": Prepared(
        between={"sightline verify probes.jsonl": CHANGE_A_LABEL},
        images=(
            "receipt.png",
            "funsd/images/form.png",
            "val2017/000000000139.jpg",
            "train_images/003a8ae2ef43b901.jpg",
            "documents/pybv0228_81.png",
            "OCRBench_Images/IIIT5K/test/918_1.png",
        ),
        files={"words.txt": "image;text;x1;y1;x2;y2\ntrain/02ac65de9eec83e1.jpg;Total;0.10;0.20;0.13;0.22\n"},
    ),
    "docs/reader.md": Prepared(
        python='import shutil\nshutil.copytree("src/sightline/assets/reader", "checkpoint")  # a card is written there'
    ),
    "docs/scale.md": Prepared((BUILD,)),
    "docs/report.md": Prepared(
        (
            BUILD,
            f"{RUN} {QWEN} --out runs/qwen",
            f"{RUN} {QWEN} --box-source rapidocr --out runs/qwen-rapidocr",
            "sightline controls build image-free probes.jsonl --annotations TextOCR_0.1_val.json --out control",
            f"{RUN.replace('probes.jsonl', 'control/image_free.jsonl')} {QWEN} --out runs/wrong-images",
            f"{RUN} {LLAVA} --out runs/llava",
            f"{RUN} {INTERNVL} --out runs/internvl",
            f"{BUILD.replace('probes.jsonl', 'development.jsonl')} --shuffle-images --exclude probes.jsonl",
            f"{RUN.replace('probes.jsonl', 'development.jsonl')} {INTERNVL} --out runs/internvl-dev",
        ),
        files={"rules.txt": "posecr(target:0.3) >= 0.5\n"},
        python="""
import shutil
from pathlib import Path
from sightline import load_run
Path("cards").mkdir()
for card in ("ttft", "prefill"):
    shutil.copy(f"benchmarks/cards/h200/{card}-qwen.json", f"cards/{card}.json")
shutil.copytree("runs/qwen", "runs/before")
shutil.copytree("runs/qwen", "runs/after")
Path("valid.txt").write_text("".join(f"{probe}\\n" for probe in load_run("runs/qwen").frame()["probe_id"].unique()))
latency_table = lambda source: None
""",
    ),
    "docs/add-a-backbone.md": Prepared((BUILD,)),
    "docs/budgets.md": Prepared((BUILD.replace("--limit 4", "--limit 20"),)),
    "docs/runs.md": Prepared(
        (BUILD, BUILD.replace("probes.jsonl", "probes/textocr.jsonl"), f"{RUN} {QWEN} --out runs/first"),
        files={"my.py": A_METHOD},
    ),
    "docs/view.md": Prepared((BUILD, f"{RUN} {QWEN} --out runs/qwen")),
    "docs/statistics.md": Prepared(
        (BUILD, f"{RUN} {INTERNVL} --out runs/first"),
        python='import sightline\nrows = frame = development_frame = sightline.load_run("runs/first").frame()',
    ),
    "docs/write-a-selector.md": Prepared((BUILD.replace("probes.jsonl", "PROBES"),)),
}
"""Page -> what it takes for granted."""
SUITE = "the test suite, its tools and the site are run by CI themselves"
ONLINE = "installs packages over the network"
TRAINING = "trains the reader for minutes on a GPU"
SERVES = "serves until it is stopped; the browser tests run it"
NOT_EXECUTED = {
    ("docs/annotate.md", "sightline annotate negatives "): SERVES,
    ("docs/annotate.md", "sightline annotate adjudicate "): SERVES,
    ("README.md", "make demo"): "sets up an environment over the network; sightline demo itself is executed",
    ("README.md", "make test"): SUITE,
    ("README.md", "pip install ."): ONLINE,
    (
        "README.md",
        "sightline audit ",
    ): "reads a folder of scans by OCR for minutes; tests of the command do so in small",
    ("README.md", "sightline view "): SERVES,
    ("CONTRIBUTING.md", "make demo"): "sets up an environment over the network; sightline demo itself is executed",
    ("CONTRIBUTING.md", "make test"): SUITE,
    ("CONTRIBUTING.md", "make test-slow"): SUITE,
    ("CONTRIBUTING.md", "make lint"): SUITE,
    ("CONTRIBUTING.md", "make docs"): SUITE,
    ("CONTRIBUTING.md", "make reference"): SUITE,
    ("CONTRIBUTING.md", ".venv/bin/python -m pytest"): SUITE,
    ("CONTRIBUTING.md", ".venv/bin/pre-commit install"): ONLINE,
    ("docs/view.md", "sightline view runs/"): "serves until it is stopped; the browser tests run it",
    ("docs/view.md", "python -m benchmarks.view_speed"): "measures a browser on up to a million rows for minutes",
    ("docs/scale.md", "python -m benchmarks.scale_check"): "times five runs, which takes minutes",
    ("docs/scale.md", "python -m benchmarks.kills"): "takes an hour; tests/faults/test_kills.py does a few",
    ("docs/reader.md", "python -m lab train --minutes 9.2"): TRAINING,
    ("docs/reader.md", "python -m lab train --minutes 9.3"): TRAINING,
    ("docs/reader.md", "python -m lab train --language-only"): TRAINING,
    ("docs/reader.md", "python -m lab train --open"): TRAINING,
    ("docs/reader.md", "python -m lab train --form llava"): TRAINING,
    ("docs/reader.md", "python -m lab export"): "exports what training leaves behind",
}
"""(page, how the command begins) -> why no test executes it."""


def as_executed(command: str) -> str:
    """A command with its substitutions and limits."""
    for pattern, replacement in SUBSTITUTIONS:
        command = re.sub(pattern, replacement, command)
    for pattern, options in LIMITS:
        if re.match(pattern, command):
            for option in re.findall(r"--[\w-]+(?: [^-]\S*)?", options):
                repeated = option.startswith("--arm ")
                if repeated or option.split()[0] not in command.split():
                    command = f"{command} {option}"
    return command


def reason_not_executed(page: str, command: str) -> str | None:
    """Why a command is left out; None for one that is executed."""
    for (where, begins), reason in NOT_EXECUTED.items():
        if where == page and command.startswith(begins):
            return reason
    return None


def exit_codes(command: str) -> tuple[int, ...]:
    return next((codes for pattern, codes in EXIT_CODES if re.match(pattern, command)), (0,))


def uses_stand_in(command: str) -> bool:
    """Whether a command reads something that only stands in for what the page speaks of."""
    return any(word.rstrip("/") in {*LAID_OUT, "MODEL"} for word in command.split())


ON_ONE_MODEL = ("docs/scale.md",)
"""Pages about something else than models, whose commands take long: several processes that load one each."""


def executed_commands(block: Block) -> list[Command]:
    return [command for command in block.commands if reason_not_executed(block.page, command.text) is None]


def is_executed(block: Block) -> bool:
    return block.kind == "python" or bool(executed_commands(block))


def executed_blocks(page: str) -> list[Block]:
    return [block for block in blocks_of(page) if is_executed(block)]


def models_of(page: str) -> tuple[str, ...]:
    """All three where the page speaks of any model, one where that says as much; nothing where it names its models, or
    needs none."""
    words = {word for block in blocks_of(page) for command in block.commands for word in command.text.split()}
    if "MODEL" not in words:
        return ()
    return MODELS[:1] if page in ON_ONE_MODEL else MODELS


def left_out() -> list[tuple[Block, Command, str]]:
    """Commands that no test executes, with the reason."""
    found = []
    for page in documented_pages():
        for block in blocks_of(page):
            for command in block.commands:
                reason = reason_not_executed(page, command.text)
                if reason is not None:
                    found.append((block, command, reason))
    return found
