"""The one exception that carries a message for the user."""

from __future__ import annotations


class SightlineError(Exception):
    """Something the user can mend. The message is one line: what, where, what to do.

    The command line prints it without a traceback (unless ``--debug``); everything computed before it stays on disk.
    """
