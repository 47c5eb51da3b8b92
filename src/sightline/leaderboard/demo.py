"""The demonstration: every reader that ships with the package, on the first pages of the locked scenes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sightline.checks.shipped_demo import SHARD_IMAGES, asset
from sightline.errors import SightlineError
from sightline.leaderboard.contest import Contest

PAGES, OPEN_PAGES = 40, 50
"""Of those shipped, with two questions each: enough for intervals, few enough for minutes on two cores."""
SMALL = "These readers are small and read drawn pages alone: the order is not that on other models."
FAVOURED = (
    "Their training worked on the target selector's own score, the agreement of a visual token with the embeddings of "
    "the words asked for, and dropped tokens at random or as target chooses them: methods that compare tokens with "
    "the question are favoured where the question names what the page has to show."
)
"""Of yes/no questions. An open question names the label of a value, not the value."""


def readers(names: Sequence[str] = ()) -> dict[str, str]:
    """The shipped checkpoints of these names; without any, all of them."""
    folders = sorted(folder for folder in asset().glob("reader*") if (folder / "config.json").is_file())
    shipped = {folder.name: str(folder) for folder in folders}
    for name in names:
        if name not in shipped:
            raise SightlineError(f"no reader '{name}' is shipped; choose from {', '.join(shipped)}")
    return {name: folder for name, folder in shipped.items() if not names or name in names}


def demo_contest(
    out: Path,
    methods: Sequence[str],
    budgets: Sequence[str],
    *,
    models: Sequence[str] = (),
    in_words: bool = False,
    pages: int | None = None,
    clip: str | None = None,
    run: Mapping[str, Any] | None = None,
) -> Contest:
    """The yes/no questions of the locked scenes, or those that are answered ``in_words``."""
    scenes = asset("scenes", "confirmation")
    # Tokens were dropped at their own positions while the readers learned; LLaVA's usual policy would close the gaps.
    settings: dict[str, Any] = {"dtype": "float32", "shard_images": SHARD_IMAGES, "positions": "preserve"}
    if in_words:
        settings["box_source"] = "gt"  # for oracles alone: nothing else looks at boxes
    return Contest(
        out,
        readers(models),
        scenes / ("open_probes.jsonl" if in_words else "probes.jsonl"),
        scenes / ("open_images" if in_words else "images"),
        methods,
        budgets,
        pages or (OPEN_PAGES if in_words else PAGES),
        clip,
        {**settings, **(run or {})},
        notes=(SMALL,) if in_words else (SMALL, FAVOURED),
    )
