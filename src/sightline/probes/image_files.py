"""Images as files of this machine for as long as they are used, wherever they lie; several fetched at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from sightline.places import Place, is_remote, place
from sightline.probes.fetched_images import HeldImage, hold_image
from sightline.probes.image_name import image_url, resolve_image

AT_ONCE = 16
"""Images that are fetched, or are fetched and not used yet."""


def image_file(root: str | Place, name: str) -> AbstractContextManager[Path]:
    """The image's file; one that had to be fetched stays at least until the context is left."""
    root = place(root)
    return hold_image(image_url(root, name)) if is_remote(root) else nullcontext(resolve_image(root, name))


def image_files(
    root: str | Place, names: Sequence[str]
) -> Generator[tuple[str, Callable[[], AbstractContextManager[Path]]], None, None]:
    """Each name with what gives its file, or raises what is wrong with it. The next ones are fetched meanwhile."""
    root = place(root)
    if not is_remote(root):
        yield from ((name, partial(image_file, root, name)) for name in names)
        return
    url = root

    def fetch(name: str) -> HeldImage:
        return hold_image(image_url(url, name))

    with ThreadPoolExecutor(AT_ONCE) as pool:
        coming: deque[tuple[str, Future[HeldImage]]] = deque()
        left = iter(names)
        try:
            while True:
                for name in left:
                    coming.append((name, pool.submit(fetch, name)))
                    if len(coming) == AT_ONCE:
                        break
                if not coming:
                    return
                name, future = coming.popleft()
                yield name, future.result
        finally:
            for _, future in coming:  # nobody will use them
                if not future.cancel() and future.exception() is None:
                    with future.result():
                        pass
