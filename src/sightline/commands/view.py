"""``sightline view``: runs in a browser, while they are written or long after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sightline.progress import waiting_for

PORT = 7447


def view(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders, finished or being written.")],
    images: Annotated[
        Path | None,
        typer.Option(help="Folder that image names are relative to, for full resolution; where the run found them."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 takes any that is free.")] = PORT,
    host: Annotated[
        str, typer.Option(help="Address to listen on. Any other than this machine's own is open to the network.")
    ] = "127.0.0.1",
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
    bundle: Annotated[
        Path | None, typer.Option(help="Write a static site into this folder instead, which works from a file.")
    ] = None,
    query: Annotated[str, typer.Option(help="Rows whose cases a bundle holds, as in the query box; all.")] = "",
    most: Annotated[int, typer.Option(min=1, help="Most cases of a bundle, per run.")] = 100,
) -> None:
    """View runs in a browser: overview, rows, cases with what every arm kept, two runs compared. Reads only.

    The address that is printed holds a token; nobody else on the machine can open it. With --bundle a folder is written
    that can be sent to somebody, or put on any web server.
    """
    from sightline.serving.listening import listen, serve
    from sightline.view.answers_to_pages import AnswersToPages
    from sightline.view.pages_served import viewer
    from sightline.view.viewed_run import viewed_runs

    if bundle is None:
        listen(host, port).close()  # a port that is taken is said before rows are read
    with waiting_for("reading rows"):
        viewed = viewed_runs(runs, images)
        for run in viewed:
            run.numbers()
    answers = AnswersToPages(viewed)
    try:
        if bundle is not None:
            from sightline.view.bundle import write_bundle

            page = write_bundle(answers, bundle, query, most)
            typer.echo(f"bundle: {page}")
            return
        serve(viewer(answers), port, browser, host=host, say=typer.echo)
    finally:
        for run in viewed:
            run.intervals.stop()
