"""``sightline new-selector``: the files of a new method, ready to be changed."""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from sightline.commands.new_package import PROJECT, class_name, write_package
from sightline.errors import SightlineError

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

TEST = Template("""\
from __future__ import annotations

import torch
from $name import $kind

from sightline.contract import check_selector
from sightline.cost.select_inputs import Inputs


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
    return write_package(folder, {f"{name}.py": SELECTOR, f"test_{name}.py": TEST, "pyproject.toml": PROJECT}, words)


def _check_name(name: str) -> None:
    from sightline.selectors import SELECTORS

    if re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name) is None or keyword.iskeyword(name):
        raise SightlineError(f"'{name}' cannot name a selector; use lower-case words joined by underscores")
    if name in SELECTORS:
        raise SightlineError(f"selector '{name}' exists already; choose another name")
    if name in sys.stdlib_module_names or name in ("sightline", "torch", "numpy", "transformers"):
        raise SightlineError(f"a module called '{name}' exists already and would be hidden; choose another name")
