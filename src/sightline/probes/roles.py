"""What a region is to an open question."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.errors import SightlineError

ANSWER, CONTEXT = "answer_value", "context"
ROLES = {
    ANSWER: "the answer itself",
    "field_label": "the label that says what the answer is",
    "row_header": "the head of the answer's row",
    "column_header": "the head of the answer's column",
    "comparison_anchor": "what the answer is compared with, or measured from",
    CONTEXT: "what has to be read besides",
}
"""Role -> what it says of a region."""


def check_roles(roles: Sequence[str]) -> tuple[str, ...]:
    """The roles, if all are known."""
    for role in roles:
        if role not in ROLES:
            raise SightlineError(f"role {role!r} is not one of {', '.join(ROLES)}")
    return tuple(roles)
