"""Images that lie inside data files: named while the questions are read, unpacked once it is known which are needed."""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from sightline.errors import SightlineError
from sightline.places.writing import write_whole
from sightline.probes.image_name import check_image_name, resolve_image

_ENDINGS = {"BMP": ".bmp", "GIF": ".gif", "JPEG": ".jpg", "PNG": ".png", "PPM": ".ppm", "TIFF": ".tif", "WEBP": ".webp"}

Packed = Iterable[tuple[str, bytes]]
"""(name, the image file as it is stored), the same image perhaps several times; the ending of a name is a guess."""


def packed_bytes(cell: object) -> bytes | None:
    """The image file in a cell: bytes, or an object ``{bytes, path}``; None where it holds none."""
    if isinstance(cell, dict):
        cell = cell.get("bytes")
    return cell if isinstance(cell, bytes) and cell else None


def image_header(data: bytes, where: str) -> tuple[str, tuple[int, int]]:
    """(usual ending of its format, (width, height)) of an image file that is held in memory."""
    from PIL import Image

    from sightline.probes.images import RASTER_FORMATS

    try:
        with Image.open(io.BytesIO(data), formats=RASTER_FORMATS) as image:
            return _ENDINGS[str(image.format)], image.size
    except Exception as problem:  # decoders raise whatever they like on damaged files
        raise SightlineError(f"{where}: its image cannot be read: {str(problem).splitlines()[0]}") from None


class PackedImages:
    """The images inside some files. They are read again for unpacking, so that nobody has to hold them meanwhile.

    Parameters
    ----------
    again: goes through the files and yields (name, image file) for every image in them.
    jpeg: the quality of RGB JPEGs that are written instead of the stored bytes; None leaves content as it is.
    """

    def __init__(self, again: Callable[[], Packed], jpeg: int | None = None) -> None:
        self._again, self._jpeg = again, jpeg

    def name(self, stated: str, data: bytes, where: str) -> str:
        """What an image is called when it is unpacked: as stated, with the ending of what it is."""
        ending = ".jpg" if self._jpeg is not None else image_header(data, where)[0]
        return check_image_name(stated.rpartition(".")[0] + ending)

    def unpack(
        self,
        folder: Path,
        names: Collection[str],
        progress: Callable[[Packed], Packed] = lambda images: images,
    ) -> int:
        """Writes the images of these names that are not in the folder yet, and says how many those were.

        A file that is there already stays as it is, if it is the same image; another one is not replaced.
        """
        written = 0
        for name, data in self.each(names, progress):
            path = resolve_image(folder, name)
            if not path.exists():
                write_whole(path, data, make_parent=True)
                written += 1
            elif path.read_bytes() != data:
                raise SightlineError(f"{path} is there already and is another image; give another folder with --images")
        return written

    def each(
        self, wanted: Collection[str], progress: Callable[[Packed], Packed] = lambda images: images
    ) -> Iterator[tuple[str, bytes]]:
        """(name, content) of each wanted image, once; stops when there are none left to look for."""
        names = set(wanted)
        for stated, data in progress(self._again()):
            if not names:
                return
            name = self.name(stated, data, stated)
            if name in names:
                names.discard(name)
                yield name, data if self._jpeg is None else self._as_jpeg(data)

    def _as_jpeg(self, data: bytes) -> bytes:
        from PIL import Image

        target = io.BytesIO()
        with Image.open(io.BytesIO(data)) as image:
            image.convert("RGB").save(target, format="JPEG", quality=self._jpeg)
        return target.getvalue()
