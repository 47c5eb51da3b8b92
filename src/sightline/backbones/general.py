"""The general route: any type of transformers whose image features take the place of placeholders in the sequence.

The checkpoint's own processor prepares the image and writes its placeholders, the model's own code makes the features,
once per image. Pruning happens between the two halves of the model, so nothing here is about one architecture: cells
are found by sending ramps through processor and tower, positions are the model's own, and the decoder is our loop where
that is measured to give the same, else the model's own. A file of its own may declare what is found here, and more.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.base import UNPROJECTED, Backbone, as_dtype, whole_model
from sightline.backbones.decoder_trials import loop_mismatch, output_head
from sightline.backbones.found_cells import Found, NoCellsError, picture_scale
from sightline.backbones.found_rows import FoundPixels, FoundProjector, FoundRows, find_projector
from sightline.backbones.from_transformers import class_and_config, pixel_names, processor_of, refusal
from sightline.backbones.images import Grid, ImageOptions, Pixels, largest_within, option
from sightline.backbones.isolated_tokens import by_products
from sightline.backbones.language import LanguageModel
from sightline.backbones.own_decoder import IMAGE, TEXT, OwnDecoder, default_token_types
from sightline.backbones.processors import SAMPLE, SpanPlanning
from sightline.backbones.prompting import Layout, SpanPlan
from sightline.backbones.signals import (
    CLASS,
    CLASS_KINDS,
    MERGED,
    ROWS,
    WEIGHTS,
    Block,
    Record,
    blocks_of,
    called_by,
    packed,
    packs,
    token_signal,
    with_pixels,
)
from sightline.core.prefix import Encoded
from sightline.core.selection import BLOCK_KINDS, HIDDEN_KINDS, PositionPolicy, hidden_indices, split_name
from sightline.core.selection import PIXELS as IMAGE_PIXELS
from sightline.device.work import on_device
from sightline.errors import SightlineError, named_line
from sightline.geometry.cells import Cells, grid_cells, merged_patches
from sightline.geometry.coverage import Sampling

# Signals of a vision tower that the model's own code runs.

SERVED_KINDS = (*HIDDEN_KINDS, *BLOCK_KINDS)
TRIAL = (640, 448)
"""(width, height) of the image on which a model's tokens are tried for cells and rows."""


class TowerSignals(SpanPlanning, Backbone):
    """What the general route serves of signals. Which rows of the tower a token is made from is found (``found_rows``)
    unless a class declares ``token_rows``, which spares it a few passes for every size of images."""

    class_token: ClassVar[bool] = False
    """Of a class that declares ``token_rows``: whether a class token stands before the patches of every tile."""

    @property
    def declares_rows(self) -> bool:
        return type(self).token_rows is not TowerSignals.token_rows

    @cached_property
    def vision_blocks(self) -> Any:
        return blocks_of(self.vision_tower)

    @property
    def vision_tower(self) -> Any:
        return self.model.get_encoder("image")

    def serves(self, name: str) -> str | None:
        kind, _ = split_name(name)
        if kind.startswith("lm."):
            return None
        if kind.startswith("clip."):
            tower = str(getattr(getattr(self.model.config, "vision_config", None), "model_type", ""))
            if not tower.startswith("clip"):
                return f"its vision tower is not the one of a CLIP checkpoint, so there is no {kind}"
        elif kind == IMAGE_PIXELS:
            return None if isinstance(self.pixels_on_trial, FoundPixels) else f"{self.pixels_on_trial}: no {kind}"
        elif kind not in SERVED_KINDS:
            return f"{type(self).__name__} has no signal {kind}"
        if self.declares_rows:
            lacks = kind in CLASS_KINDS and not self.class_token
            return f"its vision tower has no class token, so there is no {kind}" if lacks else None
        reason = self._unserved(name)
        return None if reason is None else f"{reason}, so there is no {kind}"

    def _unserved(self, name: str) -> str | None:
        """Why the rows that were found, on an image of one size, do not give a signal."""
        found, (kind, _), depth = self.rows_on_trial, split_name(name), len(self.vision_blocks)
        if isinstance(found, str):
            return found
        if kind in CLASS_KINDS and found.class_row < 0:
            several = f"{found.leads} rows of its vision tower come from no pixel, which is the class token nobody says"
            return several if found.leads > 1 else "its vision tower has no class token"
        if kind == "vision.cls" and found.rows.shape[1] > 1:
            return "its class token is one state where a token is made from several"
        try:
            indices = sorted(hidden_indices([name], depth))
        except SightlineError:  # whether its layers are there is another question
            return None
        if not found.alike[indices].all():
            return "its vision tower goes on with other rows there than those that tokens are made from"
        if kind in BLOCK_KINDS and not found.attends[indices].all():
            return "the blocks of its vision tower keep queries and keys to themselves"
        return None

    @cached_property
    def rows_on_trial(self) -> FoundRows | str:
        """Or why there are none."""
        return self._on_trial(self.found_rows)

    @cached_property
    def pixels_on_trial(self) -> FoundPixels | str:
        return self._on_trial(self.found_pixels)

    def _on_trial(self, find: Callable[[tuple[int, int]], Found]) -> Found | str:
        """What is found for an image of one size, or why not; of a model that is not loaded nothing can be said."""
        self.tower_module  # noqa: B018
        try:
            self.plan(TRIAL)
            return find(TRIAL)
        except SightlineError as error:
            return str(error)
        except Exception as error:  # whatever is wrong with the model is said where its images are encoded
            return f"its own code fails where its tower is looked into ({named_line(error)})"

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        """(N, m) rows of the vision tower, all tiles one behind the other, that each token is made from."""
        return self.found_rows(size).of(self.plan(size).sourced.numpy())[0]

    def token_weights(self, size: tuple[int, int]) -> Tensor | None:
        """(N, m) how much of a token comes from each of its ``token_rows``; None: all have the same part in it."""
        if self.declares_rows:
            return None
        return self.found_rows(size).of(self.plan(size).sourced.numpy())[1]

    def tower_rows(self, size: tuple[int, int]) -> dict[str, Tensor]:
        """What ``token_signal`` has to know of the rows of an image of this (width, height)."""
        known = {ROWS: self.token_rows(size), WEIGHTS: self.token_weights(size)}
        if not self.declares_rows:
            found = self.found_rows(size)
            known[CLASS] = torch.tensor([found.class_row, found.class_at])
        elif self.class_token:
            known[CLASS] = torch.tensor([0, 0])
        return {name: value for name, value in known.items() if value is not None}

    def vision_signal(self, name: str, encoded: Encoded) -> Tensor:
        if name == IMAGE_PIXELS:
            return encoded.captured[name]
        return token_signal(name, encoded.captured, len(self.vision_blocks))

    @cached_property
    def projector(self) -> FoundProjector | str:
        """What makes tokens of states, each token of its own alone, or why nothing does; found on one image."""
        rows = self.rows_on_trial
        if isinstance(rows, str):
            return rows
        features, tower, blocks = (lambda given: self.features(given)[0]), self.tower_module, self.vision_blocks
        return self._on_trial(
            lambda size: find_projector(size, self.image_inputs, features, tower, blocks, rows, self.pixels)
        )

    def unprojected(self) -> str | None:
        """Merged is what the projector of such a type reads, whichever states of the tower those are."""
        if self.declares_rows:
            return UNPROJECTED
        if not hasattr(self, "seeing"):  # only a loaded model tells
            return None
        return None if isinstance(self.projector, FoundProjector) else f"{UNPROJECTED}: {self.projector}"

    def merge_sources(self, encoded: Encoded) -> Tensor:
        if self.declares_rows or isinstance(self.projector, str):
            return super().merge_sources(encoded)
        rows, of_image = encoded.captured[ROWS], int(encoded.captured[CLASS][1])
        parts = [(encoded.captured[f"hidden:{state}"], place) for state, place in self.projector.parts]
        sources = torch.cat([states[rows[:, place]] for states, place in parts], dim=1)
        if of_image < 0 or rows.shape[1] > 1:
            return sources
        return torch.cat([sources, torch.cat([states[of_image] for states, _ in parts])[None]])

    def project(self, hidden: Tensor) -> Tensor:
        if self.declares_rows or isinstance(self.projector, str):
            return super().project(hidden)
        projected: Tensor = self.projector.module(hidden)
        return projected

    def clip_states(self, encoded: Encoded) -> Tensor:
        normed: Tensor = self.vision_tower.post_layernorm(self.vision_signal("vision.hidden@-2", encoded))
        return normed


def image_feature_model(model: Any) -> Any:
    """What makes image features and numbers positions: the model without its output head, or else with it."""
    inside = getattr(model, "model", model)
    return inside if hasattr(inside, "get_image_features") else model


PIXELS = "pixel_values"
GRIDS = "image_grid_thw"
LARGE = (2048, 1536)
"""The same of one that is large for any model."""
STEPS = 16
"""Sizes that an image of a model without cells is tried at to meet a budget."""


@dataclass(frozen=True)
class ShownSmaller(ImageOptions):
    """How an image meets a budget where nobody knows its processor: nothing that a user chooses."""

    longest_edge: int = option(1, "Longest edge in pixels that the processor is handed.", least=1)


class General(TowerSignals):
    """A checkpoint of any image-text type.

    A span holds the image's tokens, whose cells are known, and separators, which come from nowhere in it: features
    without a source, and text that the processor writes between the features.
    """

    model_class: ClassVar[str] = ""
    """Class of transformers that holds the checkpoint; empty: the one that transformers has for its type."""
    first_position: ClassVar[int] = 0
    """What the model numbers the first token of a sequence by."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        processor: Any,
        options: ImageOptions,
        identity: Mapping[str, Any] | None = None,
    ) -> None:
        self.processor = processor
        self.identity = identity or {}
        self.body = model.model if hasattr(model, "model") else without_head(model.get_decoder())
        self.seeing = image_feature_model(model)
        self.plans, self.known = {}, {}
        self.scales: dict[tuple[ImageOptions, tuple[int, int]], float | None] = {}
        self.call_block: Block | None = None
        """How a block of the tower is called instead of running itself; see ``sightline.backbones.execution``."""
        super().__init__(model, tokenizer, processor.image_processor, options)

    @classmethod
    def load(
        cls, source: str, *, dtype: torch.dtype, device: torch.device, attention: str, options: ImageOptions
    ) -> General:
        import transformers

        transformers.utils.logging.disable_progress_bar()
        folder = Path(source)
        kind, config, called = class_and_config(folder, cls.model_class)
        reason = refusal(kind) if cls.features is General.features else None
        if reason is not None:
            raise SightlineError(f"{folder.name} is a '{called}' model: {reason}")
        processor = processor_of(folder, config)
        settings = {"config": config, "dtype": dtype}
        try:
            model = whole_model(kind, folder, attn_implementation=attention, **settings)
        except ValueError:  # the few that know no other, or whose decoder does not
            model = whole_model(kind, folder, attn_implementation="eager", **settings)
        model.config.model_type = called  # rows say what the checkpoint calls itself
        identity = {"model": config.to_dict(), "processor": processor.image_processor.to_dict()}
        return cls(model.to(device), processor.tokenizer, processor, options, identity)

    @property
    def title(self) -> str:
        """What messages call it: its class, or the checkpoint's type where that has none."""
        return type(self).__name__ if type(self) is not General else f"a '{self.model.config.model_type}' model"

    # ------------------------------------------------------------------ language

    @property
    def image_token_id(self) -> int:
        config = self.model.config
        for place in (config, self.processor):
            for name in ("image_token_id", "image_token_index"):
                if getattr(place, name, None) is not None:
                    return int(getattr(place, name))
        raise SightlineError(f"{type(self.model).__name__} does not say which token an image's features replace")

    @cached_property
    def axes(self) -> int:  # type: ignore[override]
        """As many as the model itself numbers a text by; three where it does not number one without an image."""
        ask = getattr(self.seeing, "get_rope_index", None)
        if ask is None:
            return 1
        ids = torch.zeros(1, 2, dtype=torch.long)
        given = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "mm_token_type_ids": ids.int()}
        takes = inspect.signature(ask).parameters
        try:
            positions, _ = ask(**{name: value for name, value in given.items() if name in takes})
        except Exception:  # whatever it wants to know of an image that is not there
            return 3
        return len(positions)

    @property
    def text_model(self) -> Any:
        return without_head(self.model.get_decoder())

    def token_types(self, kinds: Tensor) -> Tensor:
        """What the model takes as token types, from the kinds of slots of ``sightline.backbones.own_decoder``."""
        return default_token_types(kinds)

    def language_model(self) -> LanguageModel:
        """Our loop where it gives what the decoder gives, else the model's own forward."""
        text_model, head = self.text_model, output_head(self.model, self.body)
        reason = loop_mismatch(self.body, text_model, self.axes)
        if reason is None:
            return LanguageModel(text_model, head, self.axes)
        return OwnDecoder(
            self.body,
            text_model,
            head,
            self.axes,
            reason=reason,
            first_position=self.first_position,
            token_types=self.token_types,
        )

    # ------------------------------------------------------------------ images

    @cached_property
    def pixels(self) -> str:  # type: ignore[override]
        """What features are made of; where they may be made of several, the one that the processor hands over."""
        names = pixel_names(getattr(self.seeing, "get_image_features", None))
        if len(names) < 2:
            return names[0] if names else PIXELS
        handed = self.image_inputs(Image.new("RGB", SAMPLE))
        return next((name for name in names if name in handed), PIXELS)

    def prepared(self, image: Image.Image, into: Tensor | None) -> tuple[Tensor, Grid, Mapping[str, Tensor]]:
        """By the checkpoint's own processor, on the host."""
        inputs = self.image_inputs(image)
        data = inputs.pop(self.pixels)
        return data, (1, data.numel() // data.shape[-1], data.shape[-1]), inputs

    def span_embeds(self, ids: tuple[int, ...]) -> Tensor:
        """(M, D) what the language model reads in a span where no feature stands."""
        return self.language.embed(ids)

    def sequence_types(self, sequence: Tensor) -> Tensor:
        return self.token_types(torch.where(sequence == self.image_token_id, IMAGE, TEXT))

    def features(self, inputs: Mapping[str, Tensor]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(P, D) features in the order of the placeholders, and DeepStack levels, by the model's own code."""
        language = self.language
        given = as_dtype(self.feature_inputs(inputs), language.dtype)
        # On a GPU the convolution that embeds patches may take longer than all else; the host's results stay exact.
        with by_products(self.tower_module) if language.device.type == "cuda" else nullcontext():
            output = self.seeing.get_image_features(**given, return_dict=True)
        levels = getattr(output, "deepstack_features", None) or ()
        features = output if isinstance(output, Tensor | list | tuple) else getattr(output, "pooler_output", None)
        if features is None:
            raise SightlineError(f"{self.title} gives its image features in a form of its own: {type(output).__name__}")
        return rows(features), tuple(rows(level) for level in levels)

    def feature_inputs(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """What the model's own code makes features of, by the names that it takes, where it wants it."""
        device = self.language.device
        return {name: on_device(value, device) for name, value in inputs.items() if name in self._feature_arguments}

    @cached_property
    def _feature_arguments(self) -> frozenset[str]:
        return frozenset(inspect.signature(self.seeing.get_image_features).parameters)

    @cached_property
    def packs_images(self) -> bool:
        """Whether its tower is handed patches in a row with the grid and the ends of every image."""
        return packs(self.vision_blocks) and GRIDS in self._feature_arguments

    def shared_shape(self, pixels: Pixels) -> tuple[int, ...]:
        return () if self.packs_images else pixels.grid

    def vision(self, batch: Sequence[Pixels], needs: frozenset[str]) -> list[Encoded]:
        """Images that are alike in layout and shape go through the tower side by side, others one by one unless it
        packs them."""
        given = [self._inputs(item) for item in batch]
        plans = [self.under(item.options).plan(item.size) for item in batch]
        # Patches in a row say nothing of their grid, and windows follow the grid.
        shapes = {
            () if self.packs_images else (plan.layout, *((name, value.shape) for name, value in inputs.items()))
            for plan, inputs in zip(plans, given, strict=True)
        }
        if len(shapes) > 1:
            return [encoded for item in batch for encoded in self.vision([item], needs)]
        record = Record(self.vision_blocks, needs | self.merged_states(needs))
        calling = called_by(self.call_block, record.unrecorded)
        with packed(self.vision_blocks), calling, record.listening():
            read = given[0].keys() & self._feature_arguments
            features, levels = self.features({name: torch.cat([each[name] for each in given]) for name in read})
        counts = [len(plan.features) for plan in plans]
        if len(features) != sum(counts):
            raise SightlineError(
                f"its processor writes {sum(counts)} placeholders for what its tower makes {len(features)} features of"
            )
        parts = zip(*(torch.split(each, counts) for each in (features, *levels)), strict=True)
        kept = record.captured([len(item.data) for item in batch])
        seen = [self._seen(*each) for each in zip(batch, plans, parts, kept, strict=True)]
        if IMAGE_PIXELS not in needs:
            return seen
        values = [self._token_values(item, plan) for item, plan in zip(batch, plans, strict=True)]
        return [with_pixels(*pair) for pair in zip(seen, values, strict=True)]

    def merged_states(self, needs: frozenset[str]) -> frozenset[str]:
        """What else is kept for methods that merge states before projection."""
        if self.declares_rows or f"vision.hidden@{MERGED}" not in needs or isinstance(self.projector, str):
            return frozenset()
        return frozenset(f"vision.hidden@{state}" for state, _ in self.projector.parts)

    def _token_values(self, item: Pixels, plan: SpanPlan) -> Tensor:
        """(N, P) values of the prepared image that each token is made from."""
        places = self.under(item.options).found_pixels(item.size).values[plan.sourced.numpy()]
        device = self.language.device
        return on_device(item.data, device).flatten()[on_device(torch.from_numpy(places), device)]

    def _inputs(self, item: Pixels) -> dict[str, Tensor]:
        return {**item.inputs, self.pixels: item.data}

    def _seen(self, item: Pixels, plan: SpanPlan, outputs: Sequence[Tensor], captured: dict[str, Tensor]) -> Encoded:
        """What the tower returned for one image: features, then DeepStack levels, and what was taken down."""
        shown = self.under(item.options)
        if captured:
            device = outputs[0].device
            known = shown.tower_rows(item.size).items()
            captured |= {name: value if name == CLASS else on_device(value, device) for name, value in known}
        tokens, deepstack, separators = plan.split(outputs[0], tuple(outputs[1:]), self.span_embeds(plan.ids))
        return Encoded(
            tokens=tokens,
            deepstack=deepstack,
            cells=plan.cells,
            layout=plan.layout,
            sampling=shown.sampling(item),
            captured=captured,
            separators=separators,
            positions=plan.positions,
            usual_n=None if item.fit is None else item.fit.usual_n,
            usual_slots=None if item.fit is None else item.fit.usual_slots,
        )

    def sampling(self, pixels: Pixels) -> Sampling | None:
        if self.no_cells is not None:
            return Sampling(pixels.size, scale=self._scale(pixels.size))
        return None if self.token_pixels is None else Sampling(pixels.size, self.token_pixels)

    # ------------------------------------------------------------------ without cells

    @cached_property
    def no_cells(self) -> str | None:  # type: ignore[override]
        """Found once, on an image of one size: no run has rows with cells and rows without."""
        if type(self).cells is not SpanPlanning.cells:
            return None
        try:
            self.reads_beyond = self.found_cells(TRIAL).reads_beyond
        except NoCellsError as error:
            return str(error)
        except Exception:  # whatever is wrong with the model is said where its images are encoded
            return None
        return None

    def processed(self, image: Image.Image) -> Any:
        if isinstance(self.options, ShownSmaller):
            image = image.resize(self.shown_size(image.size), Image.Resampling.BICUBIC)
        return super().processed(image)

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        if not isinstance(self.options, ShownSmaller):
            return super().shown_size(size)
        share = min(1.0, self.options.longest_edge / max(size))
        return max(1, round(size[0] * share)), max(1, round(size[1] * share))

    @property
    def fixed(self) -> str | None:
        if self.no_cells is None:
            return super().fixed
        alike = self.token_count(LARGE) == self.token_count(SAMPLE)
        return "its processor makes as many tokens of every image, large or small" if alike else None

    def fitting(self, size: tuple[int, int], k: int) -> ImageOptions:
        """The longest edge that makes the most tokens within k.

        Tiles come and go with an image's size in ways of the processor's own: sizes in steps of a sixteenth are tried,
        then by halving those above the best of them.
        """
        if self.no_cells is None and self.fixed_tokens is not None:
            return super().fitting(size, k)

        def count(edge: int) -> int:
            return self.under(ShownSmaller(longest_edge=edge)).token_count(size)

        edges = [max(1, max(size) * step // STEPS) for step in range(STEPS, 0, -1)]
        counts = {edge: count(edge) for edge in edges}
        low = self.most_within(size, k, counts, "however small it is shown")
        high = min((edge for edge in edges if edge > low), default=low)
        return ShownSmaller(longest_edge=largest_within(count, k, low, high))

    def _scale(self, size: tuple[int, int]) -> float | None:
        """Input pixels per source pixel along an edge, by ramps through the processor; of several pictures the finest.

        What was shrunk before and is enlarged by it counts as shrunk. None for a processor that hands over no pictures,
        or that does not keep their pixels in place.
        """
        key = (self.options, size)
        if key not in self.scales:
            inputs = self.image_inputs(Image.new("RGB", size))
            pictures = [name for name, value in inputs.items() if "pixel_values" in name and value.dim() > 3]
            found = [picture_scale(size, self.image_inputs, name) for name in pictures]
            known = [min(scale, max(self.shown_size(size)) / max(size)) for scale in found if scale is not None]
            self.scales[key] = max(known, default=None)
        return self.scales[key]

    def visual_positions(
        self, encoded: Encoded, slots: Tensor, start: int, policy: PositionPolicy
    ) -> tuple[Tensor, int | Tensor]:
        assert encoded.positions is not None
        return encoded.positions.kept(slots, start, policy)


def without_head(decoder: Any) -> Any:
    """A decoder without an output head of its own."""
    return decoder.model if hasattr(decoder, "lm_head") else decoder


def rows(features: Tensor | Sequence[Tensor]) -> Tensor:
    """(sum of P, D), whether transformers returns one tensor or one per image or tile."""
    return features.flatten(0, -2) if isinstance(features, Tensor) else torch.cat([rows(part) for part in features])


class SquarePicture(General):
    """The image is stretched to a square, so cells are a plain grid; a token is made from a square of patches."""

    fixed_tokens = "its processor makes a square of one size of every image, large or small"

    @property
    def patches(self) -> int:
        """Patches along the edge of the picture."""
        vision = self.model.config.vision_config
        return int(vision.image_size) // int(vision.patch_size)

    @property
    def side(self) -> int:
        """Tokens along the edge of the picture."""
        return self.patches

    @property
    def merge(self) -> int:
        """Patches along the edge of a token."""
        return self.patches // self.side

    @property
    def token_pixels(self) -> int:
        return (self.merge * int(self.model.config.vision_config.patch_size)) ** 2

    def cells(self, size: tuple[int, int], inputs: Mapping[str, Tensor]) -> tuple[Cells, Tensor, Layout]:
        return grid_cells(self.side, self.side), torch.ones(self.side**2, dtype=torch.bool), ((self.side, self.side),)

    def token_rows(self, size: tuple[int, int]) -> Tensor:
        return torch.from_numpy(merged_patches(self.side, self.side, self.merge))
