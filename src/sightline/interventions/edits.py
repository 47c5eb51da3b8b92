"""One change made on purpose to an arm, written behind it: ``target:0.3+remove_evidence``, ``full+occlude_evidence``.

Everything else of the arm stays: an edited arm asks the same selector with the same salt, so its rows pair with those
of the plain arm probe by probe.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import cast

from sightline.errors import SightlineError
from sightline.types import PositionPolicy

REMOVE, RESTORE, RESTORE_RANDOM = "remove_evidence", "restore_evidence", "restore_random"
OCCLUDE, OCCLUDE_RANDOM, BLANK = "occlude_evidence", "occlude_random", "blank"
SWAP = "swap_positions"
VIEW_OF = {OCCLUDE: "evidence_masked", OCCLUDE_RANDOM: "random_masked", BLANK: "blank"}
"""Edits of the image, and the view that rows of each carry."""
SHARES = (0.25, 0.5, 1.0)
_SUFFIX = re.compile(r"^(.+)\+((?:remove|restore|occlude|swap|blank)[^+]*)$")


@dataclass(frozen=True)
class Edit:
    """``share`` is the part that a restoration puts back; None for every other kind."""

    kind: str
    share: float | None = None

    def __str__(self) -> str:
        return self.kind if self.share is None else f"{self.kind}={self.share}"

    @classmethod
    def parse(cls, text: str) -> Edit:
        kind, equals, value = text.strip().partition("=")
        if kind in (RESTORE, RESTORE_RANDOM):
            try:
                share = float(value)
            except ValueError:
                share = 0.0
            if not 0.0 < share <= 1.0:
                raise SightlineError(f"'{text}' needs a share in (0, 1], for example {kind}=0.5")
            return cls(kind, share)
        if equals or kind not in (REMOVE, SWAP, *VIEW_OF):
            known = (REMOVE, f"{RESTORE}=SHARE", f"{RESTORE_RANDOM}=SHARE", *VIEW_OF, SWAP)
            raise SightlineError(f"'{text}' is no edit of an arm; choose one of {', '.join(known)}")
        return cls(kind)

    @property
    def on_mask(self) -> bool:
        return self.kind in (REMOVE, RESTORE, RESTORE_RANDOM)

    @property
    def needs_regions(self) -> bool:
        return self.on_mask or self.kind in (OCCLUDE, OCCLUDE_RANDOM)

    @property
    def view(self) -> str:
        """The image that the arm looks at: ``orig`` unless the edit changes it."""
        return VIEW_OF.get(self.kind, "orig")

    @property
    def tag(self) -> str:
        """The share in the salt of draws: 0p25, 0p50, 1p00."""
        return f"{self.share or 0.0:.2f}".replace(".", "p")

    def policy(self, usual: PositionPolicy) -> PositionPolicy:
        if self.kind != SWAP:
            return usual
        return cast(PositionPolicy, {"preserve": "compact", "compact": "preserve"}[usual])


def split_edit(text: str) -> tuple[str, Edit | None]:
    """The plain arm and its edit, from ``ARM`` or ``ARM+EDIT``. A plus within arguments is left alone."""
    found = _SUFFIX.match(text.strip())
    return (found[1], Edit.parse(found[2])) if found else (text, None)


DELETION = (Edit(REMOVE), *(Edit(kind, share) for share in SHARES for kind in (RESTORE, RESTORE_RANDOM)))
INTERVENTIONS: dict[str, tuple[Edit, ...]] = {
    "deletion": DELETION,
    "occlusion": (Edit(OCCLUDE), Edit(OCCLUDE_RANDOM)),
    "blank": (Edit(BLANK),),
    "positions": (Edit(SWAP),),
}
"""What ``--interventions NAME`` adds to every arm it applies to."""
