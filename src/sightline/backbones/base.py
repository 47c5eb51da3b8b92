"""The contract that an architecture fulfils, and the checkpoint folder that it is loaded from.

What all architectures share is built on it, in files of its own.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.images import Fit, Grid, ImageOptions, Pixels
from sightline.backbones.language import LanguageModel
from sightline.backbones.own_decoder import TOKEN_TYPES
from sightline.backbones.prompting import Prompting
from sightline.core.prefix import Encoded
from sightline.core.registry import Registry
from sightline.core.selection import SENSITIVITY, Budget, Method, PositionPolicy, form_for, split_name
from sightline.device.work import Limit, Stopwatch
from sightline.errors import SightlineError, first_line

BACKBONES: Registry[type[Backbone]] = Registry(
    "architecture", group="sightline.backbones", package="sightline.backbones"
)
"""Architectures by the ``model_type`` of their ``config.json``: in this package, or behind another's entry point."""

Shown = TypeVar("Shown")
"""A way to show an image: image options, or an edge in pixels."""
DIRECTIONS, DISTURBED = 64, 0.01
"""Along how many directions, and how far, states are disturbed to see what the projector makes of it."""
UNPROJECTED = "it merges states of the vision tower, and single ones cannot be made tokens there"


def projector_sensitivity(project: Callable[[Tensor], Tensor], states: Tensor) -> Tensor:
    """(N,) float32 of (N, C) states x: mean over directions u of |P(x + h u) - P(x - h u)| / 2h, P what ``project``
    does; the u are unit vectors, drawn once for all images."""
    drawn = torch.randn(DIRECTIONS, states.shape[1], generator=torch.Generator().manual_seed(0))
    steps = DISTURBED * drawn / drawn.norm(dim=1, keepdim=True)
    moved = states.new_zeros(len(states), dtype=torch.float32)
    for step in steps.to(states):
        moved += (project(states + step) - project(states - step)).float().norm(dim=1)
    return moved / (2 * DISTURBED * DIRECTIONS)


class Backbone(Prompting, ABC):
    """One architecture: image and question in, visual tokens with their cells and a language model out.

    A backbone owns geometry: the token-to-cell map, checked against the real number of visual tokens, and the logical
    positions under both policies. It never patches classes and leaves no hooks behind.
    """

    image_options: ClassVar[type[ImageOptions]] = ImageOptions
    """What can be chosen about its images, on the command line with ``--image-option NAME=VALUE``."""
    axes: ClassVar[int] = 1
    """Rotary position axes: 3 for multimodal rotary embeddings."""
    fixed_tokens: ClassVar[str | None] = "its class does not say how fewer tokens are asked for (Backbone.fitting)"
    """Why the model cannot be shown a smaller image to make fewer tokens of it; None where ``fitting`` knows how."""
    adapter: ClassVar[str] = ""
    """Folder of a checkpoint with the LoRA adapter that is merged into its weights; empty: none is."""
    paper_positions: ClassVar[PositionPolicy] = "compact"
    """Position policy of the paper's main rows for this architecture."""

    no_cells: str | None = None
    """Why its image tokens come from no place in the image; None for every model whose tokens have cells."""
    instead: str | None = None
    """Of the general route, why the class of the checkpoint's type does not serve it; None where it has none."""

    def __init__(self, model: Any, tokenizer: Any, image_processor: Any, options: ImageOptions) -> None:
        self.model = model.eval()
        self.tokenizer = tokenizer
        self.image_processor = image_processor
        self.options = options
        self.language = self.language_model()
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        """What memory has been seen to hold of images being encoded, selected from, and read by the layers."""

    @property
    def title(self) -> str:
        """What messages call it."""
        return type(self).__name__

    def language_model(self) -> LanguageModel:
        """What reads prefixes: our loop over the decoder's layers."""
        return LanguageModel(self.model.model.language_model, self.model.lm_head, self.axes)

    # ------------------------------------------------------------------ images

    def preprocess(self, image: Image.Image, into: Tensor | None = None, *, budget: Budget | None = None) -> Pixels:
        """What the host does. Under a ``budget`` the image is shown small enough to make no more tokens than that.

        ``into`` is memory to be reused, where the architecture has a use for it.
        """
        started = time.perf_counter()
        fit = None if budget is None else self.fit(image.size, budget)
        shown = self.under(None if fit is None else fit.options)
        data, grid, inputs = shown.prepared(image if image.mode == "RGB" else image.convert("RGB"), into)
        return Pixels(data, grid, image.size, (time.perf_counter() - started) * 1e3, fit, inputs)

    def prepared(self, image: Image.Image, into: Tensor | None) -> tuple[Tensor, Grid, Mapping[str, Tensor]]:
        """Of an RGB image ``data``, ``grid`` and ``inputs`` of its ``Pixels``, under the image options.

        Asked for by ``preprocess``; a class with one of its own needs none.
        """
        raise SightlineError(f"{type(self).__name__} does not say how an image is prepared: it needs `prepared`")

    @abstractmethod
    def image_inputs(self, image: Image.Image) -> dict[str, Tensor]:
        """What the checkpoint's own image processor makes of an image, by the names that the model's forward takes."""

    def span_ids(self, size: tuple[int, int]) -> tuple[int, ...]:
        """What stands for an image of this (width, height) in a sequence for the unmodified model."""
        return (self.image_token_id,) * self.token_count(size)

    def sequence_types(self, sequence: Tensor) -> Tensor:
        """(B, S) token types of a prompt for the unmodified model, where it takes any."""
        return (sequence == self.image_token_id).int()

    def sequence_facts(self, sequence: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the unmodified model is told of every token of a prompt, by the names that its forward takes.

        ``inputs`` is what the image processor says of the image.
        """
        types, takes = self.sequence_types(sequence), inspect.signature(self.model.forward).parameters
        return {name: types for name in TOKEN_TYPES if name in takes}

    @abstractmethod
    def token_count(self, size: tuple[int, int]) -> int:
        """N for an image of this (width, height)."""

    def slot_count(self, size: tuple[int, int]) -> int:
        """M for an image of this (width, height): its tokens, and separators between them."""
        return len(self.span_ids(size))

    @abstractmethod
    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        """One call of the vision tower and projector for all images of the batch, cells attached.

        Activations that the signals in ``needs`` are read from are kept in ``Encoded.captured``.
        """

    def shared_shape(self, pixels: Pixels) -> tuple[int, ...]:
        """What images must have in common to go through the vision tower in one call; () lets any two."""
        return pixels.grid

    @property
    def token_pixels(self) -> int | None:
        """Input pixels that one visual token is made from, merged patches together; None: rows have no legibility."""
        return None

    def processor_arguments(self) -> dict[str, Any]:
        """What the checkpoint's image processor must be called with to honour the image options."""
        return {}

    @property
    def fixed(self) -> str | None:
        """``fixed_tokens``, where it takes a loaded model to tell."""
        return type(self).fixed_tokens

    def fitting(self, size: tuple[int, int], k: int) -> ImageOptions:
        """Image options under which an image of this (width, height) makes at most k tokens, as near to k as it can.

        Asked only for fewer tokens than the image makes. A k that no size of the image meets is refused in words.
        """
        raise SightlineError(f"{type(self).__name__} makes no smaller images: {self.fixed_tokens}")

    def most_within(self, size: tuple[int, int], k: int, counts: Mapping[Shown, int], where: str) -> Shown:
        """Of ways to show an image that make so many tokens, the first with the most within k.

        Refused in words if none is; ``where`` says how the image makes the fewest.
        """
        within = {way: count for way, count in counts.items() if count <= k}
        if not within:
            raise SightlineError(
                f"an image of {size[0]} x {size[1]} pixels makes {min(counts.values())} visual tokens on {self.title} "
                f"{where}, and the budget is {k}; choose a larger budget"
            )
        return max(within, key=within.__getitem__)

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        """(width, height) in pixels that the tower is shown of an image of this (width, height)."""
        return size

    def fit(self, size: tuple[int, int], budget: Budget) -> Fit:
        """How an image of this (width, height) meets a budget; at its usual size if that does."""
        n = self.token_count(size)
        k = budget.resolve(n)
        return Fit(self.fitting(size, k) if k < n else self.options, n, self.slot_count(size))

    def under(self, options: ImageOptions | None) -> Self:
        """The same model, its memory of limits and tables included, with other image options; None changes nothing."""
        if options is None:
            return self
        changed = copy.copy(self)
        changed.options = options
        return changed

    @torch.inference_mode()
    def encode(self, batch: Sequence[Pixels], needs: Iterable[str] = ()) -> list[Encoded]:
        """Vision tower once over the batch, keeping what the signals in ``needs`` are read from.

        Each image is billed its share of the time.
        """
        watch = Stopwatch(self.language.device, shared_by=len(batch))
        encoded = self.vision(batch, frozenset(needs))
        watch.stop()
        return [
            replace(item, preprocess_ms=pixels.preprocess_ms, vision_time=watch)
            for item, pixels in zip(encoded, batch, strict=True)
        ]

    # ------------------------------------------------------------------ signals

    @property
    @abstractmethod
    def vision_blocks(self) -> Any:
        """The transformer blocks of the vision tower."""

    @property
    def vision_depth(self) -> int:
        """How many of the blocks an image's tokens depend on."""
        return len(self.vision_blocks)

    def serves(self, name: str) -> str | None:
        """None when this architecture can compute the signal, else the reason why not."""
        kind, _ = split_name(name)
        return None if kind.startswith("lm.") else f"{type(self).__name__} has no signal {kind}"

    def form(self, method: Method) -> Method:
        """The method as it runs here: itself, or the form that is published for such models."""
        depth = len(self.vision_blocks) if self.no_cells is None else None
        return form_for(method, self.lacks, self.unprojected, depth)

    def lacks(self, name: str) -> str | None:
        """The same of every signal, those included that are made of what an architecture has."""
        if name != SENSITIVITY:
            return self.serves(name)
        return None if self.unprojected() is None else "single states of its vision tower cannot be made tokens"

    def sensitivity(self, encoded: Encoded) -> Tensor:
        """(N,) float32, how far the projector moves a token if its state is disturbed a little."""
        return projector_sensitivity(self.project, self.merge_sources(encoded)[: encoded.n])

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        """A ``vision.*`` or ``image.*`` signal of one encoded image."""
        raise SightlineError(f"{type(self).__name__} has no signal {name}")

    def clip_states(self, encoded: Encoded) -> Tensor:
        """(N, C) penultimate patch states after the tower's final layer norm, for CLIP's visual projection."""
        raise SightlineError(f"{type(self).__name__} has no CLIP tower")

    def merge_sources(self, encoded: Encoded) -> Tensor:
        """(N + 1, C) vision hidden states that methods merge before projection, the class token last."""
        raise SightlineError(f"{type(self).__name__} cannot merge vision states before projection")

    def project(self, hidden: Tensor) -> Tensor:
        """(K, C) vision hidden states as (K, D) language tokens."""
        raise SightlineError(f"{type(self).__name__} cannot project single vision states")

    def unprojected(self) -> str | None:
        """Why states of its vision tower, merged, cannot be made tokens; None where ``project`` says how.

        Like ``serves`` it is asked of a checkpoint's configuration alone as well, before a model is loaded.
        """
        return UNPROJECTED if type(self).project is Backbone.project else None

    def synchronise(self) -> None:
        if self.language.device.type == "cuda":
            torch.cuda.synchronize(self.language.device)

    # ------------------------------------------------------------------ positions

    @abstractmethod
    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        """(A, K) logical ids of kept slots behind ``start`` text tokens, and the id of the next text token.

        ``slots`` (K,) are places in the image's span: its tokens, and separators where there are any.

        That id is a tensor () where it depends on which tokens were kept: nothing here may wait for the device.
        """

    # ------------------------------------------------------------------ loading

    @classmethod
    def declines(cls, config: Mapping[str, Any], images: Mapping[str, Any]) -> str | None:
        """Why it cannot serve a checkpoint of its type, which then takes the general route; None where it can.

        ``config`` is the content of ``config.json``, ``images`` the settings of the image processor.
        """
        return None

    @classmethod
    @abstractmethod
    def load(
        cls, source: str, *, dtype: torch.dtype, device: torch.device, attention: str, options: ImageOptions
    ) -> Backbone:
        """The checkpoint in a folder; safetensors only, no remote code."""


# The checkpoint as transformers itself calls it: its own image processor, its ordinary forward.


@torch.inference_mode()
def model_logits(backbone: Backbone, image: Image.Image, ids: tuple[int, ...], head: int) -> Tensor:
    """The unmodified model's logits over the whole sequence: its own image processor, its ordinary forward."""
    logits: Tensor = backbone.model(**model_inputs(backbone, image, ids, head), use_cache=False).logits[0]
    return logits


def model_inputs(backbone: Backbone, image: Image.Image, ids: tuple[int, ...], head: int) -> dict[str, Tensor]:
    """What the unmodified model is called with: pixels from its own image processor, the image's span behind the head.

    ``ids`` are those of the text, ``head`` of them before the image.
    """
    span = backbone.span_ids(image.size)
    sequence = torch.tensor([[*ids[:head], *span, *ids[head:]]], device=backbone.language.device)
    given = processor_inputs(backbone, image)
    given |= backbone.sequence_facts(sequence, given)
    return {**given, "input_ids": sequence, "attention_mask": torch.ones_like(sequence)}


def processor_inputs(backbone: Backbone, image: Image.Image) -> dict[str, Tensor]:
    """What the checkpoint's own image processor makes of an image, on the model's device."""
    language = backbone.language
    inputs = {name: value.to(language.device) for name, value in backbone.image_inputs(image).items()}
    return as_dtype(inputs, language.dtype)


def as_dtype(inputs: Mapping[str, Tensor], dtype: torch.dtype) -> dict[str, Tensor]:
    """Pixel values, those of tiles or of a second tower among them, in the model's precision; the rest as it is."""
    return {name: value.to(dtype) if "pixel_values" in name else value for name, value in inputs.items()}


# A checkpoint folder: its files, its configuration, a model that is whole.

WEIGHTS, PICKLED = "*.safetensors", "pytorch_model*.bin"
DESCRIPTION = ("*.json", "*.jinja", "*.txt", "*.model")
"""What a checkpoint has beside its weights: configuration, image processor, tokenizer, chat template."""
NAMED = 3
"""Missing tensors that a refusal names; it counts the others."""


def read_config(folder: Path) -> dict[str, Any]:
    """The ``config.json`` of a checkpoint folder."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise SightlineError(f"{folder} has no config.json: it is not a checkpoint folder") from None
    except OSError as error:
        raise SightlineError(f"{folder / 'config.json'} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{folder / 'config.json'} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise SightlineError(f"{folder / 'config.json'} does not describe a model: it is no JSON object")
    for name, part in config.items():
        if name.endswith("_config") and not isinstance(part, dict | None):
            raise SightlineError(f"{folder / 'config.json'} does not describe a model: {name} is no JSON object")
    return config


def weight_files(folder: Path, source: str = "") -> list[Path]:
    """``source`` is what the user called the checkpoint, where that is not its folder."""
    files = sorted(folder.glob(WEIGHTS))
    if not files:
        name = source or folder
        if Path(name).is_dir() and not any(folder.glob(PICKLED)):  # of a hub id none would have been fetched
            raise SightlineError(f"{name} has no *.safetensors weights; fetch the checkpoint again")
        raise SightlineError(
            f"{name} has no *.safetensors weights, and pickle files are not loaded; "
            f"`sightline convert {name} --out NEW_FOLDER` makes safetensors of its pytorch_model.bin"
        )
    return [*files, *_adapter_file(folder)]


def _adapter_file(folder: Path) -> list[Path]:
    """Of a type that is read with an adapter merged into its weights: they are not whole without it."""
    kind = str(read_config(folder).get("model_type"))
    adapter = BACKBONES.get(kind).adapter if kind in BACKBONES else ""
    if not adapter:
        return []
    file = folder / adapter / "adapter_model.safetensors"
    if not file.is_file():
        raise SightlineError(
            f"{folder.name} has no {adapter}/{file.name}: a '{kind}' model sees with that LoRA adapter alone; fetch "
            f"the folder {adapter} of the same checkpoint too"
        )
    return [file]


def weight_digest(folder: Path) -> str:
    """SHA-256 over the names and contents of all safetensors files that are read: what the weights are, wherever they
    lie."""
    digest = hashlib.sha256()
    files = weight_files(folder)
    with ThreadPoolExecutor() as pool:  # hashing lets other threads run
        for file, content in zip(files, pool.map(_file_digest, files), strict=True):
            digest.update(file.relative_to(folder).as_posix().encode())
            digest.update(content)
    return f"sha256:{digest.hexdigest()}"


def description_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint that are not weights.

    Which of them are read depends on the tokenizer and on the version of transformers: all are taken, so that none is
    missed.
    """
    return _digests(file for pattern in DESCRIPTION for file in folder.glob(pattern))


def subfolder_digests(folder: Path) -> dict[str, str]:
    """The same of files below it, by path: chat templates, tokenizers and processors that libraries find there.

    Hidden folders and checkpoints of their own, such as those of a training, are nobody's description.
    """
    found: dict[str, str] = {}
    for below in sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(".")):
        if not ((below / "config.json").exists() and any(below.glob(WEIGHTS))):
            own = {**description_digests(below), **subfolder_digests(below)}
            found |= {f"{below.name}/{name}": digest for name, digest in own.items()}
    return found


def checkpoint_digests(folder: Path) -> dict[str, str]:
    """SHA-256 by name of all files of a checkpoint, its weights included."""
    return {**description_digests(folder), **_digests(weight_files(folder))}


def _digests(files: Iterable[Path]) -> dict[str, str]:
    return {file.name: f"sha256:{_file_digest(file).hex()}" for file in sorted(files)}


def _file_digest(file: Path) -> bytes:
    with open(file, "rb") as handle:
        return hashlib.file_digest(handle, "sha256").digest()


def configuration(model_class: str, values: Mapping[str, Any]) -> Any:
    """The configuration in a ``config.json``, read as one of this class of transformers.

    By the type transformers finds the tokenizer, and how weights of older files are called today. A checkpoint of
    another package's architecture has a type it does not know: weights that it misses would be left at random.

    A copy for whoever asks: loading a model asks eight times, and transformers checks every field each time.
    """
    return copy.deepcopy(_checked_configuration(model_class, json.dumps(values)))


@lru_cache(maxsize=8)
def _checked_configuration(model_class: str, text: str) -> Any:
    import transformers

    kind = getattr(transformers, model_class).config_class
    try:
        return kind.from_dict({**json.loads(text), "model_type": kind.model_type})
    except Exception as error:  # transformers checks a configuration in many ways
        raise SightlineError(f"config.json does not describe a {model_class} ({first_line(error)})") from error


def whole_model(model_class: Any, folder: Path, **settings: Any) -> Any:
    """The model of a checkpoint folder, refused by name of a tensor that is not there or has another shape.

    Transformers would leave such a tensor at random and say so in a warning. Tied tensors need to be there once.
    """
    model, found = model_class.from_pretrained(
        folder, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True, **settings
    )
    for name, stored, wanted in sorted(found["mismatched_keys"]):
        raise SightlineError(
            f"{folder.name} does not fit together: {name} is {_sides(stored)}, its config.json asks for "
            f"{_sides(wanted)}; fetch the checkpoint again"
        )
    missing = sorted(found["missing_keys"])
    if missing:
        named = ", ".join(missing[:NAMED]) + (", ..." if len(missing) > NAMED else "")
        raise SightlineError(
            f"{folder.name} lacks {len(missing)} tensor{'s' * (len(missing) > 1)} that its config.json asks for: "
            f"{named}; fetch the checkpoint again"
        )
    return model


def _sides(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape))


def processor_template(source: str) -> str:
    """The chat template that older repositories keep with the processor instead of the tokenizer."""
    from transformers.utils import cached_file

    for name in ("chat_template.jinja", "chat_template.json"):
        path = cached_file(source, name, _raise_exceptions_for_missing_entries=False)
        if path is not None:
            text = Path(path).read_text(encoding="utf-8")
            return text if name.endswith(".jinja") else str(json.loads(text)["chat_template"])
    raise SightlineError(f"{source} has no chat template (chat_template.jinja or in tokenizer_config.json)")


def image_settings(folder: Path) -> Mapping[str, Any]:
    """What a checkpoint says of its image processor, in either of two files; what it leaves out is as usual."""
    within: Mapping[str, Any] | None = read_settings(folder / "processor_config.json").get("image_processor")
    return within or read_settings(folder / "preprocessor_config.json")


def read_settings(file: Path) -> Mapping[str, Any]:
    """What one of a checkpoint's files of settings says; nothing where it has no such file."""
    if not file.is_file():
        return {}
    content: Mapping[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return content
