"""``sightline run``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from sightline.auditing.config import HOW, AuditConfig, read_config
from sightline.commands.options import Overrides, with_options
from sightline.progress import waiting_for


@with_options
def run(
    *,
    config: Annotated[Path | None, typer.Option(help="YAML file with any of the options below; flags win.")] = None,
    given: Annotated[dict[str, Any], Overrides(AuditConfig, HOW)],
) -> None:
    """Audit arms on a probe set. Kill it at any moment and run the same command again: finished shards are kept.

    Exit code 0: finished; 1: finished but for images that could not be read or work that was set aside; 2: error.
    """
    with waiting_for("starting", logged=False):
        settings = read_config(config, given)
        from sightline.auditing.audit import audit
        from sightline.commands.run_summary import print_summary

    finished = audit(settings)
    print_summary(finished)
    if finished.failed or (finished.bad_images and not settings.skip_bad_images):
        raise typer.Exit(1)
