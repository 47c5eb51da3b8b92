"""The image of an annotated page: under the name that the page states, or under the name of the page's own file."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

from sightline.errors import SightlineError
from sightline.probes.image_name import check_image_name, resolve_image

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
