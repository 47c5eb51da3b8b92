"""Where the work of an audit runs, one file each. A file registers itself; nothing else lists it."""

from sightline.auditing.launchers.base import LAUNCHERS, Launcher

__all__ = ["LAUNCHERS", "Launcher"]
