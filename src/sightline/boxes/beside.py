"""Boxes beside an audit: detectors search images in processes of their own while earlier ones are scored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from threading import Thread
from types import TracebackType

from sightline.boxes.detection import Detected
from sightline.boxes.sources import Shown, box_source
from sightline.core.probe import Probe
from sightline.device import moved
from sightline.places import Place
from sightline.progress import Progress


class _StoppedError(Exception):
    """Nobody waits any more."""


class BoxesBeside:
    """The boxes of one source for the probes of an audit.

    A source that searches starts at once and goes through the images in order; ``shown`` waits for those it is asked
    about. Annotated and simulated boxes need no search. Leaving the context ends the search.

    ``turn`` is what the search waits for, where several processes would do the same; it is told when nobody waits for
    its result any more.
    """

    def __init__(
        self,
        source: str,
        images: Place,
        probes: Sequence[Probe],
        turn: Callable[[Callable[[], bool]], AbstractContextManager[None]] = lambda given_up: nullcontext(),
    ) -> None:
        self._turn = turn
        self._source, self._images = box_source(source), images
        self.detects = self._source.searches
        names = dict.fromkeys(probe.image for probe in probes) if self.detects else {}
        self._found: dict[str, Future[Detected]] = {name: Future() for name in names}
        self._stopped = False
        self._thread = Thread(target=self._search, daemon=True)

    def __enter__(self) -> BoxesBeside:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopped = True
        self._thread.join()

    def _search(self) -> None:
        try:
            if self._found:
                with self._turn(lambda: self._stopped):
                    if not self._stopped:
                        self._source.search(self._images, self._found, self._tell)
        except Exception as error:  # whoever waits for an image gets to hear it
            for future in self._found.values():
                if not future.done():
                    future.set_exception(error)

    def _tell(self, name: str, found: Detected) -> None:
        if self._stopped:
            raise _StoppedError
        self._found[name].set_result(found)
        moved()

    def wait(self) -> None:
        """Until every image has been searched."""
        if self._found:
            with Progress("finding boxes", len(self._found), "images") as progress:
                for future in self._found.values():
                    future.result()
                    progress.advance()

    def shown(self, probes: Sequence[Probe]) -> Shown:
        """The probes with their boxes; waits for the search of their images, no others."""
        names = dict.fromkeys(probe.image for probe in probes) if self.detects else {}
        return self._source.show(probes, {name: self._found[name].result() for name in names})
