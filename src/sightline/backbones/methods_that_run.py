"""Which of the registered methods run on a checkpoint, and why the others do not."""

from __future__ import annotations

from sightline.backbones.served import Served
from sightline.core.selection import Method
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS


def methods_that_run(served: Served) -> dict[str, str]:
    """Every method, with its default arguments, by name: ``yes``, ``yes, with --clip``, or ``no`` with the reason."""
    answers = {}
    for name, kind in SELECTORS.items():
        method = with_defaults(kind)
        try:
            served.refuse(method, clip=True)
        except SightlineError as error:
            answers[name] = f"no: {str(error).partition(': ')[2]}"
        else:
            answers[name] = "yes, with --clip" if any(need.startswith("clip.") for need in method.needs) else "yes"
    return answers


def with_defaults(kind: type[Method]) -> Method:
    """A method made without its arguments: a field's default is a class attribute, and one without default has no say
    in what the method says about itself."""
    return object.__new__(kind)
