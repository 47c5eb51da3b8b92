"""Every image-text type of the installed transformers: what its classes have, and how Sightline serves it.

    python -m benchmarks.architectures [TYPE ...] [--json | --page]

From each type's config class a checkpoint of some hundred thousand random weights is made (``tests/zoo``; nothing is
downloaded) and examined as ``sightline doctor`` examines a user's. A few minutes on one core. ``--page`` prints
docs/architectures.md.
"""

from __future__ import annotations

import argparse
import importlib
import json
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import transformers

from sightline.backbones import BACKBONES
from sightline.backbones.from_transformers import THINKER, image_text_types
from sightline.backbones.loading import backbone_class
from sightline.checks.doctor import examine
from sightline.errors import SightlineError
from tests.zoo.building import build, build_wrapped
from tests.zoo.stand_ins import needed, stood_in_for

OUTCOMES = {
    "exact": "served by a file of its own",
    "general": "served by the general route",
    "no cells": "audited by answers and legibility alone",
    "refused": "refused",
    "fails": "not served, since a check failed",
    "not built": "never examined",
}
"""What became of a type, in words. Served means that every check of ``sightline doctor`` passed."""
NOTES = {"gemma4": "with and without per-layer embeddings (E2B, E4B)"}
"""What else has to be said of a served type."""
LONGEST = 200
"""Letters of a reason that the table shows."""


@dataclass(frozen=True)
class Line:
    """One type."""

    model_type: str
    model_class: str
    image_features: bool
    placeholders: bool
    rope_index: bool
    outcome: str
    """A key of ``OUTCOMES``."""
    reason: str
    """Why not, where it is not served; else what has to be said of it, if anything."""


def survey(model_type: str) -> Line:
    name = image_text_types()[model_type]
    features, mask, index = (
        has(name, method) for method in ("get_image_features", "get_placeholder_mask", "get_rope_index")
    )
    outcome, reason = outcome_of(model_type)
    for said_already in (f"{model_type} is a '{model_type}' model: ", f"{model_type}: "):
        reason = reason.removeprefix(said_already)
    reason = reason.partition("; Sightline has files for")[0]
    return Line(model_type, name, features, mask, index, outcome, reason)


def has(model_class: str, method: str) -> bool:
    """Whether the class has a method, or the model inside it that is written in the same file."""
    kind = getattr(transformers, model_class)
    module = importlib.import_module(kind.__module__)
    beside = (
        value for value in vars(module).values() if isinstance(value, type) and value.__module__ == module.__name__
    )
    return any(hasattr(candidate, method) for candidate in (kind, *beside))


def outcome_of(model_type: str) -> tuple[str, str]:
    """(key of ``OUTCOMES``, reason) of a type."""
    wrapper = model_type.removesuffix(THINKER)
    make, name = (build, model_type) if wrapper == model_type else (build_wrapped, wrapper)
    with tempfile.TemporaryDirectory() as place, stood_in_for(model_type):
        try:
            backbone_class(model_type)  # refused by its classes alone, whatever a checkpoint would show
        except SightlineError as error:
            return "refused", first_line(error)
        try:
            folder = make(name, Path(place) / name)
        except (SightlineError, ImportError) as error:
            return "not built", first_line(error)
        except Exception as error:  # whatever a configuration does not like; the survey goes on
            return "not built", f"{type(error).__name__}: {first_line(error)}"
        try:
            found = examine(str(folder), device="cpu")
            failed = [check.words for check in found if not check.passed]
        except SightlineError as error:
            return "refused", first_line(error)
        except Exception as error:
            return "fails", f"{type(error).__name__}: {first_line(error)}"
    if failed:
        return "fails", "; ".join(failed)
    if found.facts["image"]["no_cells"] is not None:
        return "no cells", found.facts["image"]["no_cells"]
    note = f"in published checkpoints of type `{wrapper}`" if wrapper != model_type else NOTES.get(model_type, "")
    packages = " and ".join(needed(model_type))
    asked = f"where {packages} {'are' if ' and ' in packages else 'is'} installed" if packages else ""
    return ("exact" if model_type in BACKBONES else "general"), "; ".join(filter(None, [note, asked]))


def first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def totals(lines: list[Line]) -> str:
    counts = Counter(line.outcome for line in lines)
    seen = [line for line in lines if line.image_features]
    served = sum(line.outcome in ("exact", "general", "no cells") for line in seen)
    words = ", ".join(f"{counts[key]} {words}" for key, words in OUTCOMES.items() if counts[key])
    return f"{len(lines)} types: {words}. Of {len(seen)} with image features {served} are served."


def table(lines: Iterable[Line]) -> str:
    rows = [
        "| type | class | image features | placeholders | rope index | Sightline |",
        "|---|---|---|---|---|---|",
        *(
            f"| `{line.model_type}` | `{line.model_class}` | {tick(line.image_features)} | {tick(line.placeholders)} | "
            f"{tick(line.rope_index)} | {OUTCOMES[line.outcome]}{': ' if line.reason else ''}{shown(line.reason)} |"
            for line in lines
        ),
    ]
    return "\n".join(rows)


def tick(value: bool) -> str:
    return "yes" if value else ""


def shown(reason: str) -> str:
    cut = reason if len(reason) <= LONGEST else reason[: LONGEST - 3].rsplit(" ", 1)[0] + " ..."
    return cut.replace("|", "\\|").replace("<", "&lt;")


PAGE = """\
# Image-text types

How Sightline serves each image-text type of transformers {version}. From every type's config class a checkpoint of
some hundred thousand random weights is made, without downloading anything, and examined as `sightline doctor` examines
yours: *served* means that every check passed on it, every method that doctor lists as yes included. A published
checkpoint may differ in a setting that matters: `sightline doctor --model MODEL` tells of yours.

Exact means: as the model's own code with the **PIL** form of the checkpoint's image processor, whatever else is
installed. The torchvision form, which `AutoProcessor` chooses where torchvision is installed, rounds otherwise when it
resizes: pixels differ by a grey level here and there, and losses with them.

{totals}

{table}

This page is written by `python -m benchmarks.architectures --page`. A type is refused where its visual tokens have no
place in the sequence, unless a file of its own knows another (`mllama`: beside it, for layers that read them by
cross-attention); the reason is what `sightline doctor` says. Where they have none in the image it is
[audited without cells](doctor.md#models-without-cells). Some image processors exist with torchvision alone, some
towers in timm alone; neither is installed where this page is made. There the operators that those processors call
(resize, pad, crop, normalise) are stood in for by torch's own, and timm's towers (`fast_vlm`, `gemma3n`,
`perception_lm`) by a small one of convolutions: the rest of such a model is its own. Convolutions of the published
towers of `gemma3n` and `fast_vlm` make every token read most of the image, as the small one does: their cells are
[tokens' own places](doctor.md#models-without-cells).

Types whose code comes with the checkpoint (`auto_map` in its config.json) are in no transformers and so not in this
table: `internvl_chat`, `minicpmv`, `molmo`, `deepseek_vl_v2`, `dots_ocr`, `kimi_vl`, `phi4mm`, `phi3_v`, `ovis2_5` and
others. They are refused as such, with the checkpoint of the same model in transformers' form where there is one:
OpenGVLab/InternVL3_5-8B-HF for InternVL3.5, llava-hf/... for LLaVA, microsoft/Phi-4-multimodal-instruct@refs/pr/70 for
Phi-4-multimodal, whose folder `vision-lora` is read too: that adapter is merged into the weights.

Every type is asked by its own template, and Qwen3-VL alone with a system message in front, another one for open
questions ([open answers](open-answers.md)): its scores and those of other types are not answers to the same prompt.
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("types", nargs="*", metavar="TYPE", help="types to look at (all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--page", action="store_true", help="print docs/architectures.md")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    transformers.utils.logging.set_verbosity(transformers.utils.logging.CRITICAL)
    transformers.utils.logging.disable_progress_bar()
    quiet = given.json or given.page
    lines: list[Line] = []
    for model_type in given.types or sorted(image_text_types()):
        lines.append(survey(model_type))
        if not quiet:
            print(plain(lines[-1]), flush=True)
    if given.json:
        print(json.dumps({"types": [asdict(line) for line in lines], "totals": totals(lines)}, indent=2))
    elif given.page:
        print(PAGE.format(version=transformers.__version__, totals=totals(lines), table=table(lines)), end="")
    else:
        print(totals(lines))


def plain(line: Line) -> str:
    marks: list[Any] = [
        word if held else "-" * len(word)
        for word, held in (("features", line.image_features), ("places", line.placeholders), ("rope", line.rope_index))
    ]
    return f"{line.model_type:23} {' '.join(marks)}  {OUTCOMES[line.outcome]}{': ' if line.reason else ''}{line.reason}"


if __name__ == "__main__":
    main()
