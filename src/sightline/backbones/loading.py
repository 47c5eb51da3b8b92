"""From a folder or hub id to a backbone on a device, safetensors only, no remote code; and the methods it serves."""

from __future__ import annotations

import difflib
import pickle
import re
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, cast

import torch

from sightline.backbones.base import (
    BACKBONES,
    DESCRIPTION,
    PICKLED,
    WEIGHTS,
    Backbone,
    configuration,
    image_settings,
    read_config,
    weight_files,
)
from sightline.backbones.from_transformers import foreign_code_reason, image_text_types, model_class, refusal
from sightline.backbones.general import General
from sightline.backbones.images import ImageOptions
from sightline.backbones.own_decoder import OwnDecoder
from sightline.core.prefix import NO_CELLS
from sightline.core.selection import (
    PUBLISHED_BLOCKS,
    LayerSelector,
    Method,
    TwoStages,
    form_for,
    hidden_indices,
    misnamed,
    of_image,
)
from sightline.errors import SightlineError, first_line
from sightline.places.writing import whole_path
from sightline.selectors import SELECTORS

DEVICE = re.compile(r"cpu|cuda(:[0-9]{1,3})?")
LITTLE = 8
"""Characters of a message that nobody understands by itself."""
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ATTENTION = ("sdpa", "eager")


def checkpoint_folder(source: str, weights: str = WEIGHTS) -> Path:
    """The local folder of a checkpoint; a hub id is fetched (config, tokenizer and safetensors files only).

    ``org/name@REVISION`` is a commit, tag or branch of it. ``weights`` are the weight files to fetch, where others are
    meant.
    """
    folder = Path(source)
    if folder.is_dir():
        return folder
    given, (source, _, revision) = source, source.partition("@")
    if revision and Path(source).is_dir():
        raise SightlineError(f"{source} is a local folder, which has no revision '{revision}'")
    folder = Path(source)
    # "models/typo" reads like a hub id, but where there is a folder models it is a slip.
    if folder.exists() or source.startswith((".", "/", "~")) or source.count("/") != 1 or folder.parent.is_dir():
        beside = [entry.name for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
        close = difflib.get_close_matches(folder.name, beside, n=1)
        meant = f"; did you mean {folder.parent / close[0]}?" if close else ""
        raise SightlineError(
            f"model folder {given} does not exist{meant}; give a local folder or a hub id such as org/name"
        )
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(source, revision=revision or None, allow_patterns=[*DESCRIPTION, weights]))
    except Exception as error:
        raise SightlineError(
            f"there is no folder {source} here, and as a hub id it cannot be fetched"
            f"{f' at {revision}' if revision else ''} ({type(error).__name__}); give a local folder instead"
        ) from error


def snapshot_revision(folder: Path) -> str | None:
    """The commit of a checkpoint that came from a hub; None of a folder of somebody's own."""
    return folder.name if folder.parent.name == "snapshots" else None


def model_type(folder: Path) -> str:
    """What a checkpoint calls its architecture; refused by name and reason if nothing here can audit it."""
    config = read_config(folder)
    kind = str(config.get("model_type") or "")
    if not kind:
        raise SightlineError(
            f"{folder.name}: config.json names no model_type, so that nothing tells what loads it; fetch the whole "
            "checkpoint in the form that transformers reads"
        )
    try:
        backbone_class(kind)
    except SightlineError as error:
        raise SightlineError(f"{folder.name} is a '{kind}' model: {foreign_code_reason(config) or error}") from None
    return kind


def backbone_class(kind: str, folder: Path | None = None) -> type[Backbone]:
    """The architecture registered for a ``model_type``, else the general route if the type's class can be tried.

    With the ``folder`` of a checkpoint, one that its type's own file cannot serve takes the general route too.
    """
    if kind in BACKBONES and (folder is None or declined(kind, folder) is None):
        return BACKBONES.get(kind)
    reason = refusal(model_class(kind))
    if reason is not None:
        raise SightlineError(f"{reason}; Sightline has files for {', '.join(BACKBONES.names())}")
    return General


def declined(kind: str, folder: Path) -> str | None:
    """Why the architecture registered for a ``model_type`` cannot serve this checkpoint; None where it can."""
    try:
        images = dict(image_settings(folder))
    except (OSError, ValueError, TypeError, AttributeError):  # whoever loads the image processor says what is wrong
        images = {}
    reason = BACKBONES.get(kind).declines(read_config(folder), images)
    return None if reason is None else f"not {BACKBONES.get(kind).__name__}: {reason}"


def choose_device(name: str) -> torch.device:
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if not DEVICE.fullmatch(name):
        raise SightlineError(f"unknown --device '{name}'; choose auto, cpu, cuda or a numbered one such as cuda:1")
    device = torch.device(name)
    if device.type == "cuda" and not torch.cuda.is_available():
        raise SightlineError("--device cuda was asked for but torch sees no GPU; use --device cpu")
    if device.index is not None and device.type == "cuda" and device.index >= torch.cuda.device_count():
        raise SightlineError(f"--device {name} does not exist; the last one is cuda:{torch.cuda.device_count() - 1}")
    return device


def use_device(name: str) -> torch.device:
    """The device, and from here on this thread's own: kernels of ours and captures run on that, whatever they read."""
    device = choose_device(name)
    if device.index is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def choose_dtype(name: str, folder: Path) -> torch.dtype:
    """``auto`` is the dtype the checkpoint was saved in."""
    if name == "auto":
        config = read_config(folder)
        name = str(config.get("dtype") or config.get("torch_dtype") or "float32")
    if name not in DTYPES:
        raise SightlineError(f"unknown dtype '{name}'; choose one of {', '.join(DTYPES)}")
    return DTYPES[name]


def options_for(
    architecture: str | Path,
    profile: Literal["paper", "artifact"] = "paper",
    given: Mapping[str, Any] | ImageOptions | None = None,
) -> ImageOptions:
    """Image options of a ``model_type``, or of the checkpoint in a folder: those given, above those of the profile.

    None is a value like any other: it asks for the checkpoint's own way where the profile has another.
    """
    folder = architecture if isinstance(architecture, Path) else None
    name = str(architecture) if folder is None else model_type(folder)
    kind = backbone_class(name, folder).image_options
    if isinstance(given, ImageOptions):
        if not isinstance(given, kind):
            raise SightlineError(f"{name} takes {kind.__name__}, not {type(given).__name__}")
        return given
    usual = kind.artifact if profile == "artifact" else {}
    try:
        return kind.of({**usual, **(given or {})}, name)
    except SightlineError as error:
        sets = ", ".join(f"{key}={value}" for key, value in usual.items())
        raise SightlineError(f"{error} (the profile sets {sets})" if sets else str(error)) from None


def load_backbone(
    source: str,
    *,
    dtype: str = "auto",
    device: str = "auto",
    attention: str = "sdpa",
    options: Mapping[str, Any] | ImageOptions | None = None,
) -> Backbone:
    """Loads a checkpoint of a known architecture.

    ``attention`` is ``sdpa`` (fast) or ``eager``. ``options`` are the architecture's image options, by name or as made
    by ``options_for``; they are checked before any weights are read.
    """
    if attention not in ATTENTION:
        raise SightlineError(f"unknown attention kernel '{attention}'; choose one of {', '.join(ATTENTION)}")
    folder = checkpoint_folder(source)
    kind = model_type(folder)
    backbone = backbone_class(kind, folder)
    chosen = options_for(folder, given=options)
    weight_files(folder, source)
    place, precision = use_device(device), choose_dtype(dtype, folder)
    if precision == torch.float32:
        # float32 means float32: a GPU's convolutions would otherwise round the patches to ten bits.
        torch.backends.cudnn.allow_tf32 = False
    try:
        loaded = backbone.load(
            str(folder),
            dtype=precision,
            device=place,
            attention=attention,
            options=chosen,
        )
    except SightlineError:
        raise
    except Exception as error:  # every library that reads a file of the checkpoint has errors of its own
        raise SightlineError(f"cannot load {folder.name}: {first_words(error)}") from error
    if kind in BACKBONES and not isinstance(loaded, BACKBONES.get(kind)):
        loaded.instead = declined(kind, folder)
    return loaded


def first_words(error: Exception) -> str:
    """What an error of another library says, on one line; its name where it says little."""
    said = " ".join(str(error).split("\n")[:2]).strip()
    return said if len(said) > LITTLE and not isinstance(error, LookupError) else f"{type(error).__name__} {said}"


# A checkpoint whose weights are a pickle, written anew as safetensors: pickles can run code, so none is audited.

CONVERTED = "model.safetensors"


def convert(source: str, out: Path) -> Path:
    """Writes the checkpoint ``source``, a folder or hub id, to the new folder ``out`` with safetensors weights.

    The pickle is opened for tensors alone (``weights_only``); one that holds anything else is refused. All other files
    are copied as they are.
    """
    from safetensors.torch import save_file

    folder = checkpoint_folder(source, weights=PICKLED)
    files = sorted(folder.glob(PICKLED))
    if not files:
        has = "it has safetensors already" if any(folder.glob(WEIGHTS)) else f"it has no {PICKLED}"
        raise SightlineError(f"{source} cannot be converted: {has}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise SightlineError(f"{out} exists and is not empty; name a new folder with --out")
    # Clones, because a file of safetensors holds every tensor by itself, tied ones too.
    tensors = {name: tensor.clone().contiguous() for file in files for name, tensor in _tensors(file).items()}
    out.mkdir(parents=True, exist_ok=True)
    for file in sorted(file for pattern in DESCRIPTION for file in folder.glob(pattern)):
        if not file.name.startswith("pytorch_model"):  # the list of pickled parts
            shutil.copyfile(file, out / file.name)
    with whole_path(out / CONVERTED) as unfinished:
        save_file(tensors, unfinished, metadata={"format": "pt"})
    return out


def _tensors(file: Path) -> dict[str, torch.Tensor]:
    try:
        found = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:  # torch's own words say how to load it in spite of that
        reason = "what else it holds could run code; look for a checkpoint with safetensors"
        raise SightlineError(f"{file.name} is not a plain file of tensors: {reason}") from None
    except (RuntimeError, EOFError) as error:
        raise SightlineError(f"{file.name} is not a plain file of tensors: {first_line(error)}") from None
    if not isinstance(found, dict) or not all(isinstance(tensor, torch.Tensor) for tensor in found.values()):
        raise SightlineError(f"{file.name} is not a plain file of tensors: it holds something else")
    return found


# Which methods an architecture can serve: of a loaded model, of a checkpoint's description alone, or of a type.

WITHOUT_CELLS = (
    "this model's image tokens come from no place in the image; it can be audited under full and resize alone"
)
TRIED = (64, 32)
"""N and K that a method is asked for its layers with."""
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
    no_cells: str | None = None
    """Why image tokens come from no place in the image; None where they do, or where only a loaded model tells."""
    unprojected: Callable[[], str | None] = lambda: None
    """Why mixtures of states of the vision tower cannot be made tokens; None where they can."""
    uncut: Callable[[Collection[str], Iterable[int]], str | None] | None = None
    """Why a method that reads these signals cannot cut after these layers; None where only a loaded model tells."""
    layers: int = 0
    """Of the language model, where it is loaded."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Of the model, by the names that trained heads know them by; empty where only the architecture is known."""

    @staticmethod
    def by(backbone: Backbone) -> Served:
        depth = len(backbone.vision_blocks) if backbone.no_cells is None else None
        language = backbone.language
        return Served(
            backbone.title,
            backbone.lacks,
            depth,
            backbone.fixed,
            backbone.no_cells,
            backbone.unprojected,
            language.uncut,
            len(language.layers),
            sizes_of(backbone.model.config),
        )

    @staticmethod
    def by_description(source: str | Path) -> Served:
        """Of a checkpoint folder, whose ``config.json`` is all that is read, or of an architecture by its type."""
        folder = Path(source)
        if not folder.is_dir() and str(source) in BACKBONES:
            return Served._unloaded(BACKBONES.get(str(source)), str(source), {})
        kind = model_type(folder)
        config = read_config(folder)
        return Served._unloaded(backbone_class(kind, folder), kind, config)

    @staticmethod
    def _unloaded(kind: type[Backbone], model_type: str, config: dict[str, Any]) -> Served:
        """Refuses nothing that only a loaded model of a foreign architecture could tell."""
        import transformers

        fixed = None if kind is General else kind.fixed_tokens  # a model without cells can be shown smaller images
        name = getattr(kind, "model_class", "") or image_text_types().get(model_type, "")
        if not hasattr(getattr(transformers, name, None), "config_class"):
            return Served(kind.__name__, lambda name: None, None, fixed)
        known = configuration(name, config)
        backbone = object.__new__(kind)
        backbone.model = SimpleNamespace(config=known)

        def serves(name: str) -> str | None:
            try:
                return backbone.lacks(name)
            except AttributeError:  # it looks at more than the configuration
                return None

        vision = getattr(known, "vision_config", None)
        depth = next((int(getattr(vision, name)) for name in DEPTHS if hasattr(vision, name)), None)
        unprojected, sizes = backbone.unprojected, sizes_of(known) if config else {}
        return Served(kind.__name__, serves, depth if config else None, fixed, unprojected=unprojected, sizes=sizes)

    def form(self, method: Method) -> Method:
        """The method as it runs there."""
        return form_for(method, self.serves, self.unprojected, self.depth)

    def refuse(self, method: Method, *, clip: bool) -> None:
        """Raises with the reason why a method cannot run; ``clip``: whether a CLIP checkpoint is at hand."""
        method = self.form(method)
        for reason in chain(self._misfits(method), self._lacks(method, clip), self._misruns(method)):
            if reason is not None:
                raise SightlineError(f"{method.name} cannot run on {self.architecture}: {reason}")

    def _misfits(self, method: Method) -> Iterator[str | None]:
        """What keeps a method from running whatever it reads, or None for what does not."""
        placed = self.no_cells is None or method.role == "reference" or method.resizes
        yield None if placed else WITHOUT_CELLS
        yield self.fixed_tokens if method.resizes else None
        yield method.head_mismatch(self.sizes)

    def _lacks(self, method: Method, clip: bool) -> Iterator[str | None]:
        """The same of every signal that it reads."""
        before = of_image(method.needs) if isinstance(method, TwoStages) else frozenset()
        for name in sorted(method.needs):
            problem = misnamed(name, method.inside and name not in before)
            if problem is not None:
                raise SightlineError(f"selector {method.name} cannot get what it needs: {problem}")
            reason = self.serves(name)
            if reason is not None:
                more = f"; {method.unpublished}" if method.unpublished else self._other_lack(method)
                yield f"it needs {name}, but {reason}{more}"
            if name.startswith("clip.") and not clip:
                raise SightlineError(
                    f"{method.name} needs {name}: name a CLIP checkpoint with --clip (for LLaVA-1.5: "
                    "openai/clip-vit-large-patch14-336, through `sightline convert` as it has no safetensors)"
                )

    def _misruns(self, method: Method) -> Iterator[str | None]:
        """The same of where it cuts, what it merges and which layers it reads."""
        # A cut without signals still needs the loop over the layers that serves them.
        yield self.serves("lm.input") if method.inside and not method.needs else None
        yield self.unprojected() if method.merges_vision else None
        if isinstance(method, LayerSelector) and self.uncut is not None:
            read = range(self.layers) if method.rehearses else method.schedule(*TRIED, self.layers)
            yield self.uncut(method.needs, read)
        if self.depth is None:
            return
        for name in sorted(method.needs):
            try:
                hidden_indices([name], self.depth)
            except SightlineError as error:
                layers = [each.name for each in fields(cast(Any, method)) if "layer" in each.name]
                yield f"{error}; set {' and '.join(layers)}" if layers else f"{error}; this tower is too shallow for it"

    def _other_lack(self, method: Method) -> str:
        """What the form for such models lacks in its turn."""
        other = method.other_form(self.depth or PUBLISHED_BLOCKS)
        reasons = [(need, self.serves(need)) for need in sorted(other.needs)] if other is not None else []
        return next((f"; its other form needs {need}, but {why}" for need, why in reasons if why is not None), "")


def sizes_of(config: Any) -> dict[str, int]:
    """Sizes that a trained head must fit, as far as a configuration tells them."""
    text, vision = config.get_text_config(), getattr(config, "vision_config", None)
    names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
    width, layers, heads, key_heads, one = (getattr(text, name, None) for name in names)
    found = {
        "width": width,
        "layers": layers,
        "attention heads": heads,
        "width of the vision tower": getattr(vision, "hidden_size", None),
    }
    if width and heads:
        one = one or width // heads
        found |= {"query size": heads * one, "key size": (key_heads or heads) * one}
    return {name: size for name, size in found.items() if isinstance(size, int)}


# Which of the registered methods run on a checkpoint, and why the others do not.


WITH_CLIP, IN_ANOTHER_FORM = "yes, with --clip", "yes, in another form"


def methods_that_run(served: Served) -> dict[str, str]:
    """Every method, with its default arguments, by name: ``yes``, ``yes, with`` what it takes, ``yes, in another form``
    that is published, or ``no`` and why."""
    answers = {}
    for name, kind in SELECTORS.items():
        method = with_defaults(kind)
        try:
            served.refuse(method, clip=True)
        except SightlineError as error:
            answers[name] = f"no: {str(error).partition(': ')[2]}"
        else:
            form = served.form(method)
            clip = "--clip" if any(need.startswith("clip.") for need in form.needs) else ""
            file = f"{kind.needs_file}=FILE" if kind.needs_file else ""
            other = "yes" if form is method else IN_ANOTHER_FORM
            answers[name] = f"yes, with {clip or file}" if clip or file else other
    return answers


def with_defaults(kind: type[Method]) -> Method:
    """A method made without its arguments: a field's default is a class attribute, and one without default has no say
    in what the method says about itself."""
    return object.__new__(kind)


# By which route a checkpoint is served: whose code makes its tokens, and whose code runs its language layers.


def served_by(backbone: Backbone) -> dict[str, str]:
    """``images``: the class that encodes them, and why its type's own does not; ``language``: our loop, or the model's
    own decoder and why, and which adapter was merged into the weights."""
    language = backbone.language
    own = f"the model's own decoder: {language.reason}" if isinstance(language, OwnDecoder) else "loop"
    own = f"{own}; {backbone.adapter} merged into the weights" if backbone.adapter else own
    images = type(backbone).__name__
    images = images if backbone.instead is None else f"{images} ({backbone.instead})"
    if backbone.no_cells is not None:
        images = f"{images} ({NO_CELLS})"
    elif getattr(backbone, "reads_beyond", False):
        images = f"{images} (cells are tokens' own places; convolutions read beyond them)"
    return {"images": images, "language": own}
