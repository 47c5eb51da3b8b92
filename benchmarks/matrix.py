"""Every method on tiny checkpoints of many types: docs/matrix.md and its sheet of kept cells.

    python -m benchmarks.matrix [TYPE ...] [--out docs/matrix.md] [--budget 0.3]

Checkpoints are the shipped ones of tests/data/tiny and, of all other types, some hundred thousand random weights that
``tests/zoo`` makes, all with towers of ``BLOCKS`` blocks; ``sightline matrix`` does the same with yours. What a method
keeps on random weights means nothing; that it runs there, and is checked, does. A minute on one core.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from pathlib import Path

import transformers

from sightline.backbones.loading import Served
from sightline.checks.matrix import page, run_matrix, sheet
from tests.heads import HEADED, drawn_head
from tests.zoo import build, deepened

TINY = Path(__file__).parents[1] / "tests" / "data" / "tiny"
SHIPPED = {"llava": TINY / "llava", "qwen3_vl": TINY / "qwen3vl", "internvl": TINY / "internvl"}
TYPES = (
    "llava", "llava_next", "llava_onevision", "qwen2_5_vl", "qwen3_vl", "internvl", "idefics3", "gemma3", "paligemma",
    "mistral3", "glm4v", "deepseek_vl", "vipllava", "qianfan_ocr", "got_ocr2", "aya_vision", "gemma4", "qwen3_5",
    "mllama",
)  # fmt: skip
"""Those with a file of their own first, then types on the general route: towers with and without class token, language
layers of all kinds; last an image that is read by cross-attention."""
BLOCKS = 24
"""Of every vision tower, as CLIP's and SigLIP's published ones have or more: methods read layers by number."""
FEWER = {"got_ocr2": 12}
"""SAM's base tower, as published."""
NOTE = """
Checkpoints here are tiny, but their vision towers have 24 blocks (SAM's 12), so that methods find the layers that they
read by default; trained heads are drawn at random too. This page is written by `python -m benchmarks.matrix`; of your
own checkpoints `sightline matrix --models A B --out page.md` writes one.
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="types to run (a choice of all kinds)")
    parser.add_argument("--out", type=Path, default=Path("docs/matrix.md"), help="the page")
    parser.add_argument("--budget", default="0.3", help="what every method may keep")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        tiny = {name: SHIPPED.get(name) or build(name, place / "tiny" / name) for name in given.types or TYPES}
        models = {name: str(deepened(source, place / name, FEWER.get(name, BLOCKS))) for name, source in tiny.items()}

        def heads(model: str) -> dict[str, Path]:
            """Of drawn weights, as the models themselves are."""
            sizes = Served.by_description(Path(model)).sizes
            return {name: drawn_head(name, place / f"{Path(model).name}-{name}.safetensors", sizes) for name in HEADED}

        made = run_matrix(models, given.budget, clip=str(TINY / "clip"), heads=heads, device="cpu", tell=print)
    picture = given.out.parent / "pictures" / f"{given.out.stem}.png"
    picture.parent.mkdir(exist_ok=True)
    picture.write_bytes(sheet(made))
    given.out.write_text(page(made, f"pictures/{picture.name}") + NOTE, encoding="utf-8")
    print(f"{given.out}, {picture}: {made.failed} FAILED")


if __name__ == "__main__":
    main()
