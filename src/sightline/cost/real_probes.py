"""Probes of a file with their images, measured instead of made-up ones."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.probes.image_name import resolve_image
from sightline.probes.images import image_size, open_image
from sightline.probes.probe_file import probes_digest, read_probes

if TYPE_CHECKING:
    from PIL import Image

    from sightline.cost.request import ProbedRequest


@dataclass(frozen=True)
class RealProbes:
    """The first probes of a file, in its order."""

    probes: tuple[Probe, ...]
    images: Path
    file: str

    @staticmethod
    def of(request: ProbedRequest) -> RealProbes | None:
        """Those that a request names; None if it names none. Every image is known to be there when this returns."""
        if not request.probe_file:
            return None
        path = Path(request.probe_file)
        found = read_probes(path).probes[: request.most_probes]
        if len(found) < request.least_probes:
            raise SightlineError(
                f"{path} holds {len(found)} probes and {request.least_probes} are asked for; "
                "give a longer file or ask for fewer"
            )
        real = RealProbes(found, Path(request.image_folder), path.name)
        _ = real.sizes
        return real

    def __len__(self) -> int:
        return len(self.probes)

    def probe(self, index: int) -> Probe:
        """The file's probes in turn, from the first again where there are fewer."""
        return self.probes[index % len(self.probes)]

    def image(self, index: int) -> Image.Image:
        probe = self.probe(index)
        return open_image(self.images, probe.image, occlude=probe.occlude)

    @cached_property
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """(width, height) of the images with the fewest and with the most pixels."""
        known = {image_size(resolve_image(self.images, probe.image)) for probe in self.probes}
        ordered = sorted(known, key=lambda size: (size[0] * size[1], size))
        return ordered[0], ordered[-1]

    def facts(self) -> dict[str, Any]:
        """For the card, which names the file and never its folder."""
        return {
            "file": self.file,
            "digest": probes_digest(self.probes),
            "count": len(self.probes),
            "sizes": [list(size) for size in self.sizes],
        }
