"""``sightline audit``: a model, a folder of documents, and one question: may it be pruned, how far, and what breaks?"""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sightline.commands.options import with_options
from sightline.core.flags import OUTPUT
from sightline.documents.audit import DocumentOptions, audit_documents
from sightline.progress import say


@with_options
def audit(
    model: Annotated[str, typer.Argument(show_default=False)],
    documents: Annotated[list[str], typer.Argument(show_default=False)],
    options: DocumentOptions,
    open_: Annotated[
        bool | None, typer.Option("--open/--no-open", show_default="on a terminal", rich_help_panel=OUTPUT)
    ] = None,
) -> None:
    """From a folder of documents to a verdict: may this model be pruned, how far, and what breaks first?

    Reads images and PDFs by OCR, asks about their fields, audits the unpruned model, pruning methods and controls, and
    writes a report. Kill it at any moment and run the same command again: nothing is read or computed twice.

    Exit code 0: there is a verdict; 1: nothing can be concluded from these pages; 2: error.
    """
    done = audit_documents(model, documents, options, say)
    say("")
    for line in done.verdict.lines:
        say(line)
    say("")
    say(f"report       {done.report} (all in {done.seconds:.0f} s)")
    say(f"look         sightline view {done.runs[0]}")
    if open_ or (open_ is None and sys.stdout.isatty()):
        from sightline.commands.report import view

        view([done.runs[0]], images=done.images, browser=True)
    if not done.verdict.says_something:
        raise typer.Exit(1)
