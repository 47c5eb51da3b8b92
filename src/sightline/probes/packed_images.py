"""Images that lie inside data files: named while the questions are read, unpacked once it is known which are needed."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path, PurePosixPath

from sightline.errors import SightlineError, first_line
from sightline.places.writing import write_whole
from sightline.probes.fetched_images import NO_IMAGE, RASTER_FORMATS, check_image_name, resolve_image

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
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(data), formats=RASTER_FORMATS) as image:
            return _ENDINGS[str(image.format)], image.size
    except UnidentifiedImageError:  # Pillow's words hold an address in memory
        raise SightlineError(f"{where}: its image cannot be read: {NO_IMAGE}") from None
    except Exception as problem:  # decoders raise whatever they like on damaged files
        raise SightlineError(f"{where}: its image cannot be read: {first_line(problem)}") from None


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
        self, folder: Path, names: Collection[str], progress: Callable[[Packed], Packed] = lambda images: images
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
        from PIL import Image

        from sightline.probes.images import stored_as

        names = set(wanted)
        for stated, data in progress(self._again()):
            if not names:
                return
            name = self.name(stated, data, stated)
            if name in names:
                names.discard(name)
                if self._jpeg is not None:
                    with Image.open(io.BytesIO(data)) as image:
                        data = stored_as(image.convert("RGB"), "JPEG", quality=self._jpeg)
                yield name, data


# The image of an annotated page: under the name that the page states, or under the name of the page's own file.

_ADDRESS = re.compile(r"[A-Za-z]+:")
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp", ".gif")


class PageImages:
    """Finds images, all below one folder.

    That folder is the given one. Without one, the first of these that holds an image asked for: the folder of the
    annotations, ``images`` in it, ``images`` beside it, the folder that it is in.
    """

    def __init__(self, annotations: Path, images: Path | None) -> None:
        self._folder = annotations if annotations.is_dir() else annotations.parent
        self._given = images
        self.root: Path | None = images

    def find(self, stated: str, file: Path | None = None, *, below: str = "") -> str:
        """The name of the image below ``root``.

        A stated name that is nowhere to be found is returned all the same: nobody may want to look at the image.

        Parameters
        ----------
        stated: the name in the annotations, perhaps with folders of the machine it was written on, perhaps without its
            ending, perhaps empty.
        file: the annotation file of this one image, if it has its own: the image may be called like it.
        below: a folder that the publisher keeps the images in and leaves out of their names.
        """
        names = self._names(stated, file, below)
        for root in [self.root] if self.root is not None else self._places():
            for name in names:
                if _is_there(root / name):
                    self.root = root
                    return name
        if stated or file is None:
            return _safe(stated)
        where = self._given or self._folder
        raise SightlineError(
            f"{file}: no image of that name ({file.stem}.png, .jpg, .tif, ...) in {where}; say where with --images"
        )

    def size(self, name: str) -> tuple[int, int] | None:
        """(width, height) in pixels from the image's header; None where the image was not found."""
        from sightline.probes.images import image_size

        if self.root is None or not _is_there(self.root / name):
            return None
        return image_size(resolve_image(self.root, name))

    def _places(self) -> list[Path]:
        beside = self._folder.resolve().parent
        return [self._folder, self._folder / "images", beside / "images", beside]

    def _names(self, stated: str, file: Path | None, below: str) -> list[str]:
        """Most specific first: as stated, then its last part, then like the file; each also in the file's subfolder."""
        plain = []
        folders = [PurePosixPath(), *([PurePosixPath(below)] if below else [])]
        if stated:
            parts = _parts(stated)
            for name in dict.fromkeys(("/".join(parts), parts[-1])):
                plain += [name] if name.lower().endswith(SUFFIXES) else [name, *_endings(name)]
        if file is not None:
            plain += _endings(file.name.removesuffix(".gz").rpartition(".")[0] or file.name)
            if file.is_relative_to(self._folder):
                folders.insert(0, PurePosixPath(file.relative_to(self._folder).parent.as_posix()))
        return list(dict.fromkeys(str(folder / name) for name in plain for folder in folders))


def _is_there(path: Path) -> bool:
    """Whether this is a file; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _endings(stem: str) -> list[str]:
    return [stem + suffix for ending in SUFFIXES for suffix in (ending, ending.upper())]


def _safe(stated: str) -> str:
    """As stated, if that is a name below the root; of a path of another machine or an address its last part."""
    try:
        return check_image_name(stated if _ADDRESS.match(stated) is None else _parts(stated)[-1])
    except SightlineError:
        return check_image_name(_parts(stated)[-1])


def _parts(stated: str) -> list[str]:
    """The parts of a path of any platform that lead down: no root, no drive, no way back up."""
    parts = [part for part in re.split(r"[\\/]", stated) if part not in ("", ".", "..") and not part.endswith(":")]
    return parts or [stated]
