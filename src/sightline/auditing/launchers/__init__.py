"""Where the work of an audit runs, one file each. A file registers itself; nothing else lists it."""

from sightline.auditing.audit import LAUNCHERS, Job, Launcher

__all__ = ["LAUNCHERS", "Job", "Launcher"]
