"""One piece of work ahead: the next arm is queued before the last one is read, the next shard prepared meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from sightline.device.memory import free_memory, is_out_of_memory

Label = TypeVar("Label")
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepared_ahead(items: Iterable[Item], work: Callable[[Item], Result]) -> Iterator[tuple[Item, Future[Result]]]:
    """Every item with what ``work`` makes of it in a thread of its own, which is always one item ahead."""
    pool = ThreadPoolExecutor(max_workers=1)
    current: tuple[Item, Future[Result]] | None = None
    try:
        for item in items:
            upcoming = item, pool.submit(work, item)
            if current is not None:
                yield current
            current = upcoming
        if current is not None:
            yield current
    finally:
        # Not waited for: where a caller failed, the garbage collector may come here while some thread is being started,
        # and that thread could not be waited for without waiting for itself.
        pool.shutdown(wait=False, cancel_futures=True)


def one_ahead(work: Iterable[tuple[Label, Callable[[], Callable[[], Result]]]]) -> Iterator[tuple[Label, Result]]:
    """Results in the order of ``work``, whose items are a label and what launches it; launching returns what reads it.

    A launch that fails costs nothing that was launched before: the pending result is handed out first. If memory had
    run out, it is then tried once more, with nothing else pending.
    """
    pending: tuple[Label, Callable[[], Result]] | None = None
    for label, launch in work:
        launched = _attempt(launch)
        again = pending is not None and _memory_ran_out(launched)
        if again:
            del launched  # and with it the tensors that its traceback holds
        if pending is not None:
            yield pending[0], pending[1]()
            pending = None
        if again:
            free_memory()
            launched = _attempt(launch)
        if isinstance(launched, Exception):
            raise launched
        pending = label, launched
    if pending is not None:
        yield pending[0], pending[1]()


def _attempt(launch: Callable[[], Callable[[], Result]]) -> Callable[[], Result] | Exception:
    try:
        return launch()
    except Exception as error:
        return error


def _memory_ran_out(outcome: object) -> bool:
    if not isinstance(outcome, Exception):
        return False
    return is_out_of_memory(outcome) or (outcome.__cause__ is not None and is_out_of_memory(outcome.__cause__))
