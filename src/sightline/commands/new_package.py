"""What ``new-selector`` and ``new-backbone`` share: a folder of files from templates, nothing overwritten."""

from __future__ import annotations

import keyword
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from sightline.errors import SightlineError

PROJECT = Template("""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "sightline-$dashed"
version = "0.1.0"
dependencies = ["sightline"]

[project.entry-points."sightline.$group"]
"$name" = "$module:$kind"

[tool.setuptools]
py-modules = ["$module"]
""")
"""Of a package with one module and one entry point."""


def class_name(name: str) -> str:
    """``very_long`` -> ``VeryLong``"""
    return "".join(part.capitalize() for part in name.split("_"))


def write_package(folder: Path, files: Mapping[str, Template], words: Mapping[str, str]) -> list[Path]:
    """Writes every template under its name, with ``words`` put in."""
    for file in files:
        if (folder / file).exists():
            raise SightlineError(f"{folder / file} exists already; name another folder with --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, template in files.items():
            (folder / file).write_text(template.substitute(words), encoding="utf-8")
    except OSError as error:
        raise SightlineError(f"cannot write to {folder}: {error.strerror}") from None
    return [folder / file for file in files]


# ``sightline new-selector``: the files of a new method, ready to be changed.

SELECTOR = Template('''\
from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from sightline import SELECTORS, Parity, QuerySpan, Role, Selection, Selector, TokenView
from sightline.selectors.scores import top


@SELECTORS.register("$name")
@dataclass(frozen=True)
class $kind(Selector):
    """Keeps the longest tokens. (Say here, in one line, what your method keeps.)

    Reference: your paper.
    Needs: projected tokens.

    Parameters
    ----------
    power: exponent of the token norm.
    """

    power: float = 1.0

    name: ClassVar[str] = "$name"
    query: ClassVar[QuerySpan] = "none"  # "target", "question" or "prompt" to get its embeddings in view.query
    parity: ClassVar[Parity] = "own"
    role: ClassVar[Role] = "method"  # "control" if it ignores the evidence on purpose
    merges: ClassVar[bool] = False  # True if what it returns has a mix
    reads_boxes: ClassVar[bool] = False  # True if it looks at view.boxes
    needs: ClassVar[frozenset[str]] = frozenset()  # for example {"vision.cls_attention@-2"}, read from view.signals

    def select(self, view: TokenView, k: int) -> Selection:
        """Chooses k of the N visual tokens: view.tokens (N, D), view.cells (N, 4), view.query (T, D), view.signals."""
        score = torch.linalg.vector_norm(view.tokens.float(), dim=1) ** self.power
        return Selection(top(score, k))
''')

SELECTOR_TEST = Template("""\
from __future__ import annotations

import torch
from sightline.contract import check_selector
from sightline.cost.selection import Inputs

from $name import $kind


def test_it_keeps_the_promises_of_a_selector() -> None:
    check_selector($kind())


def test_it_keeps_what_its_first_line_says() -> None:
    view = Inputs(64, torch.device("cpu"), seed=0).view($kind.needs)
    kept = $kind().select(view, 20).anchors
    length = view.tokens.norm(dim=1)
    assert set(kept.tolist()) == set(length.topk(20).indices.tolist())
""")


def new_selector(
    name: Annotated[str, typer.Argument(help="Name of the method in arms: lower case, digits, underscores.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to. [default: sightline-NAME]")] = None,
) -> None:
    """Write a new pruning method with a test: a small package that ``pip install -e`` makes known to Sightline."""
    folder = out if out is not None else Path(f"sightline-{name.replace('_', '-')}")
    for path in write_selector(name, folder):
        print(f"wrote {path}")
    print(f"next: pip install -e {folder}, then sightline run ... --arm {name}:0.3")


def write_selector(name: str, folder: Path) -> list[Path]:
    """The three files; nothing is overwritten."""
    _check_name(name)
    words = {"name": name, "dashed": name.replace("_", "-"), "module": name, "kind": class_name(name)}
    words["group"] = "selectors"
    return write_package(
        folder, {f"{name}.py": SELECTOR, f"test_{name}.py": SELECTOR_TEST, "pyproject.toml": PROJECT}, words
    )


def _check_name(name: str) -> None:
    from sightline.selectors import SELECTORS

    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) is None or keyword.iskeyword(name):
        raise SightlineError(f"'{name}' cannot name a selector; use lower-case words joined by underscores")
    if name in SELECTORS:
        raise SightlineError(f"selector '{name}' exists already; choose another name")
    if name in sys.stdlib_module_names or name in ("sightline", "torch", "numpy", "transformers"):
        raise SightlineError(f"a module called '{name}' exists already and would be hidden; choose another name")


# ``sightline new-backbone``: the files of a new architecture, ready to be changed.

BACKBONE = Template('''\
"""$kind: one square in a CLIP tower, a token for every patch. (Say here, in one line, what yours is.)"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from sightline.backbones import BACKBONES, ImageOptions
from sightline.backbones.general import General
from sightline.backbones.images import option
from sightline.backbones.prompting import Layout
from sightline.geometry.cells import Cells, cropped_cells, grid_cells
from torch import Tensor


@dataclass(frozen=True)
class ${kind}Options(ImageOptions):
    whole: bool = option(False, "Squeeze the whole image into the square instead of cutting its middle out.")


@BACKBONES.register("$name")
class $kind(General):
    """Every method below may be deleted: the general route then finds out, or refuses what needs it."""

    model_class = "LlavaForConditionalGeneration"  # of transformers; not needed for a type that it knows
    image_options = ${kind}Options
    options: ${kind}Options
    class_token = True  # whether the tower puts one before the patches
    fixed_tokens = "its processor makes a square of one size of every image"  # None if ``fitting`` makes smaller ones

    @property
    def side(self) -> int:
        """Rows, and columns, of tokens."""
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def token_pixels(self) -> int:
        """Input pixels that a token is made from: rows have a legibility then."""
        return int(self.model.config.vision_config.patch_size) ** 2

    def processor_arguments(self) -> dict[str, Any]:
        """What the options ask of the checkpoint's image processor."""
        if not self.options.whole:
            return {}
        return {"size": dict(self.image_processor.crop_size), "do_center_crop": False}

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        """(N, 4) cells of an image of this (width, height), (P,) which features have one, and their layout."""
        if self.options.whole:
            cells = grid_cells(self.side, self.side)
        else:
            edge, crop = int(self.image_processor.size["shortest_edge"]), self.image_processor.crop_size
            cells = cropped_cells(self.side, self.side, size, edge, (int(crop["width"]), int(crop["height"])))
        return cells, torch.ones(len(cells), dtype=torch.bool), ((self.side, self.side),)

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        """(N, 1) rows of the tower that each token is made from, behind the class token: signals are read from them."""
        return torch.arange(1, self.side**2 + 1)[:, None]
''')

BACKBONE_TEST = Template('''\
from __future__ import annotations

from pathlib import Path

import pytest
from sightline.contract import check_backbone, tiny_tokenizer, write_checkpoint
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

from $module import $kind


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny one with random weights. (Take the classes of your model, and the shapes of its published files.)"""
    words = tiny_tokenizer("<image>")
    sides = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(**sides, image_size=56, patch_size=14),
        text_config=LlamaConfig(**sides, vocab_size=words.get_vocab_size()),
        image_token_index=words.token_to_id("<image>"),
    )
    return write_checkpoint(
        tmp_path_factory.mktemp("checkpoint"),
        LlavaForConditionalGeneration(config),
        words,
        model_type="$name",
        processor={
            "processor_class": "LlavaProcessor",
            "patch_size": 14,
            "num_additional_image_tokens": 1,
            "vision_feature_select_strategy": "default",
        },
        image_processor={
            "image_processor_type": "CLIPImageProcessor",
            "size": {"shortest_edge": 56},
            "crop_size": {"height": 56, "width": 56},
        },
    )


def test_it_keeps_the_promises_of_a_backbone(checkpoint: Path) -> None:
    check_backbone($kind, checkpoint)


def test_so_it_does_with_its_options(checkpoint: Path) -> None:
    check_backbone($kind, checkpoint, whole=True)
''')

README = Template("""\
# $kind for Sightline

Checkpoints whose `config.json` says `"model_type": "$name"`. Installed, this package serves them wherever Sightline
loads a model:

    pip install -e .
    pytest
    sightline doctor --model CHECKPOINT
    sightline run --model CHECKPOINT --probes probes.jsonl --images IMAGES --arm full --arm target:0.3 --out runs/first

- `$module.py`: what the class declares.
- `test_$module.py`: a tiny checkpoint, and what an audit relies on, checked on it.

As written, both are of LLaVA's form: one square in a CLIP tower, a class token, a Llama decoder. Change them to yours.
""")


def new_backbone(
    name: Annotated[str, typer.Argument(help="The model_type of its checkpoints' config.json.")],
    out: Annotated[Path | None, typer.Option(help="Folder to write to. [default: sightline-NAME]")] = None,
) -> None:
    """Write a new architecture with a test: a small package that ``pip install -e`` makes known to Sightline.

    Try ``sightline doctor --model CHECKPOINT`` first: most image-text types of transformers need no class of their own.
    """
    folder = out if out is not None else Path(f"sightline-{dashed(name)}")
    for path in write_backbone(name, folder):
        print(f"wrote {path}")
    print(f"next: pip install -e {folder}, pytest {folder}, then sightline doctor --model CHECKPOINT")


def write_backbone(name: str, folder: Path) -> list[Path]:
    """The four files; nothing is overwritten."""
    _new_backbone_check_name(name)
    plain = re.sub("[.-]", "_", name)
    words = {"name": name, "dashed": dashed(name), "module": f"sightline_{plain}", "kind": class_name(plain)}
    words["group"] = "backbones"
    module = words["module"]
    files = {
        f"{module}.py": BACKBONE,
        f"test_{module}.py": BACKBONE_TEST,
        "pyproject.toml": PROJECT,
        "README.md": README,
    }
    return write_package(folder, files, words)


def dashed(name: str) -> str:
    return re.sub("[._]", "-", name)


def _new_backbone_check_name(name: str) -> None:
    from sightline.backbones import BACKBONES

    if re.fullmatch(r"[a-z][a-z0-9]*([._-][a-z0-9]+)*", name) is None:
        raise SightlineError(
            f"'{name}' cannot be a model_type; use what config.json says, lower-case words joined by underscores"
        )
    if name in BACKBONES:
        raise SightlineError(f"architecture '{name}' has a class already; see `sightline backbones {name}`")
