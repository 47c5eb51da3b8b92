"""Which methods an architecture can serve: of a loaded model, of a checkpoint's description alone, or of a type."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from sightline.backbones.base import BACKBONES, Backbone
from sightline.backbones.general_types import image_text_types
from sightline.backbones.loading import backbone_class, described, model_type
from sightline.backbones.own_decoder import OwnDecoder
from sightline.backbones.pretrained import configuration
from sightline.backbones.signals import hidden_indices, misnamed
from sightline.core.selection import Method
from sightline.errors import SightlineError
from sightline.selectors import SELECTORS

DEPTHS = ("num_hidden_layers", "depth")
"""What configurations call the number of blocks of a vision tower."""


@dataclass(frozen=True)
class Served:
    """What is needed to say whether a method runs."""

    architecture: str
    """Name of the backbone's class."""
    serves: Callable[[str], str | None]
    """None for a signal that the architecture computes, else the reason why not."""
    depth: int | None
    """Blocks of the vision tower; None where only the architecture is known."""
    fixed_tokens: str | None
    """Why the number of tokens does not follow the size of the image; None where it does."""
    unprojected: str | None
    """Why mixtures of states of the vision tower cannot be made tokens; None where they can."""

    @staticmethod
    def by(backbone: Backbone) -> Served:
        kind = type(backbone)
        depth = len(backbone.vision_blocks)
        return Served(backbone.title, backbone.serves, depth, kind.fixed_tokens, backbone.unprojected())

    @staticmethod
    def by_description(source: str | Path) -> Served:
        """Of a checkpoint folder, whose ``config.json`` is all that is read, or of an architecture by its type."""
        folder = Path(source)
        if not folder.is_dir() and str(source) in BACKBONES:
            return Served._unloaded(BACKBONES.get(str(source)), str(source), {})
        kind = model_type(folder)
        config = described(folder)
        return Served._unloaded(backbone_class(kind, folder), kind, config)

    @staticmethod
    def _unloaded(kind: type[Backbone], model_type: str, config: dict[str, Any]) -> Served:
        """Refuses nothing that only a loaded model of a foreign architecture could tell."""
        import transformers

        name = getattr(kind, "model_class", "") or image_text_types().get(model_type, "")
        if not hasattr(getattr(transformers, name, None), "config_class"):
            return Served(kind.__name__, lambda name: None, None, kind.fixed_tokens, None)
        known = configuration(name, config)
        backbone = object.__new__(kind)
        backbone.model = SimpleNamespace(config=known)

        def serves(name: str) -> str | None:
            try:
                return backbone.serves(name)
            except AttributeError:  # it looks at more than the configuration
                return None

        vision = getattr(known, "vision_config", None)
        depth = next((int(getattr(vision, name)) for name in DEPTHS if hasattr(vision, name)), None)
        return Served(kind.__name__, serves, depth if config else None, kind.fixed_tokens, backbone.unprojected())

    def refuse(self, method: Method, *, clip: bool) -> None:
        """Raises with the reason why a method cannot run; ``clip``: whether a CLIP checkpoint is at hand."""
        if method.resizes and self.fixed_tokens is not None:
            raise SightlineError(f"{method.name} cannot run on {self.architecture}: {self.fixed_tokens}")
        for name in sorted(method.needs):
            problem = misnamed(name, method.inside)
            if problem is not None:
                raise SightlineError(f"selector {method.name} cannot get what it needs: {problem}")
            reason = self.serves(name)
            if reason is not None:
                raise SightlineError(f"{method.name} cannot run on {self.architecture}: it needs {name}, but {reason}")
            if name.startswith("clip.") and not clip:
                raise SightlineError(
                    f"{method.name} needs {name}: name a CLIP checkpoint with --clip (for LLaVA-1.5: "
                    "openai/clip-vit-large-patch14-336, through `sightline convert` as it has no safetensors)"
                )
        if method.merges_vision and self.unprojected is not None:
            raise SightlineError(f"{method.name} cannot run on {self.architecture}: {self.unprojected}")
        if self.depth is not None:
            for name in sorted(method.needs):
                self._refuse_layer(method, name, self.depth)

    def _refuse_layer(self, method: Method, signal: str, depth: int) -> None:
        try:
            hidden_indices([signal], depth)
        except SightlineError as error:
            layers = [field.name for field in fields(cast(Any, method)) if "layer" in field.name]
            way_out = f"; set {' and '.join(layers)}" if layers else "; this tower is too shallow for it"
            raise SightlineError(f"{method.name} cannot run on {self.architecture}: {error}{way_out}") from None


# Which of the registered methods run on a checkpoint, and why the others do not.


def methods_that_run(served: Served) -> dict[str, str]:
    """Every method, with its default arguments, by name: ``yes``, ``yes, with --clip``, or ``no`` with the reason."""
    answers = {}
    for name, kind in SELECTORS.items():
        method = with_defaults(kind)
        try:
            served.refuse(method, clip=True)
        except SightlineError as error:
            answers[name] = f"no: {str(error).partition(': ')[2]}"
        else:
            answers[name] = "yes, with --clip" if any(need.startswith("clip.") for need in method.needs) else "yes"
    return answers


def with_defaults(kind: type[Method]) -> Method:
    """A method made without its arguments: a field's default is a class attribute, and one without default has no say
    in what the method says about itself."""
    return object.__new__(kind)


# By which route a checkpoint is served: whose code makes its tokens, and whose code runs its language layers.


def served_by(backbone: Backbone) -> dict[str, str]:
    """``images``: the class that encodes them, and why its type's own does not; ``language``: our loop, or the model's
    own decoder and why."""
    language = backbone.language
    own = f"the model's own decoder: {language.reason}" if isinstance(language, OwnDecoder) else "loop"
    images = type(backbone).__name__
    return {"images": images if backbone.instead is None else f"{images} ({backbone.instead})", "language": own}
