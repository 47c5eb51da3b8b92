"""What is measured: a backbone, images and questions about them, made up in a fixed size or those of real probes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.answering.answerer import Answerer
from sightline.answering.materialise import ArmPass, SelectStep
from sightline.answering.scorers import Scorer
from sightline.answering.scorers.spoken import Generation
from sightline.arms.arm import Arm, parse_arm
from sightline.backbones import load_backbone
from sightline.backbones.base import Backbone
from sightline.backbones.clip import ClipSpace
from sightline.backbones.loading import DTYPES, use_device
from sightline.core.prefix import Encoded, Prompt
from sightline.core.probe import Probe
from sightline.core.selection import PositionPolicy
from sightline.cost.request import ProbedRequest, Request
from sightline.cost.shapes import StandInTokenizer, random_backbone, shape_named
from sightline.device.graphs import capture
from sightline.errors import SightlineError
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_size, open_image
from sightline.probes.probe_file import probes_digest, read_probes

# Probes of a file with their images, measured instead of made-up ones.


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


# CLIP for cost measurements: nothing remembered between samples, and a random-weight one of the published shape.


class ForgetfulClip(ClipSpace):
    """Encodes a question every time it is asked: an audit asks once per probe, so a sample must pay for it."""

    _captured: dict[str, Callable[[], Tensor]] | None = None

    def capture(self) -> None:
        """From now on the text tower is replayed as a graph per question, on a GPU; tokenising comes beforehand."""
        if self.model.device.type == "cuda" and self._captured is None:
            self._captured = {}

    def text(self, question: str) -> Tensor:
        if self._captured is None:
            return self._embedded_anew(question)
        if question not in self._captured:
            ids = torch.tensor([self.tokenizer(question).input_ids], device=self.model.device)
            if ids.shape[1] > int(self.model.config.text_config.max_position_embeddings):
                return self._embedded_anew(question)
            with torch.inference_mode():
                self._captured[question], _ = capture(lambda: self._features(input_ids=ids), self.model.device)
        return self._captured[question]()

    @torch.inference_mode()
    def _embedded_anew(self, question: str) -> Tensor:
        return self._embedded(question)


class RandomClip(ForgetfulClip):
    """The text tower and projections of CLIP ViT-L/14-336. The image is encoded by the backbone's own tower.

    A tiny shape, told by the width of its vision tower, has a tiny CLIP.
    """

    def __init__(self, vision_width: int, device: torch.device) -> None:
        from transformers import CLIPConfig, CLIPModel

        width, layers = (768, 12) if vision_width >= 256 else (64, 2)
        text = {"num_hidden_layers": layers, "num_attention_heads": width // 64, "intermediate_size": 4 * width}
        vision = {"hidden_size": vision_width, "num_hidden_layers": 1, "num_attention_heads": 1}
        config = CLIPConfig(
            text_config={"hidden_size": width, "projection_dim": width, **text},
            vision_config={"projection_dim": width, **vision},
            projection_dim=width,
        )
        with torch.device(device):
            self.model = CLIPModel._from_config(config, dtype=torch.float32).eval()
        self.tokenizer = StandInTokenizer(image_token_id=5)


QUESTION = "Is the word exit visible in this image? Answer with yes or no."
TARGET = "exit"
IMAGE_SIZE = (896, 896)
BOXES = ((0.1, 0.2, 0.3, 0.27), (0.55, 0.6, 0.8, 0.7))
DISTINCT = 4
"""Different images in a batch; a larger batch repeats them."""


@dataclass
class Subject:
    """Everything that a measurement needs, made before any clock runs."""

    backbone: Backbone
    clip: ClipSpace | None
    policy: PositionPolicy
    image_size: tuple[int, int]
    text_tokens: int
    real: RealProbes | None = None
    """What is asked about, instead of made-up images."""

    @staticmethod
    def of(request: Request) -> Subject:
        real = RealProbes.of(request) if isinstance(request, ProbedRequest) else None
        device = use_device(request.device)
        if request.config:
            name = request.dtype if request.dtype != "auto" else ("bfloat16" if device.type == "cuda" else "float32")
            if name not in DTYPES:
                raise SightlineError(f"unknown dtype '{name}'; choose one of {', '.join(DTYPES)}")
            backbone = random_backbone(request.config, device=device, dtype=DTYPES[name], attention=request.attention)
            usual = shape_named(request.config).image
        else:
            backbone = load_backbone(
                request.checkpoint,
                dtype=request.dtype,
                device=str(device),
                attention=request.attention,
                options=request.image_options or None,
            )
            usual = IMAGE_SIZE
        clip: ClipSpace | None = ForgetfulClip(request.clip, device) if request.clip else None
        if clip is None and request.config and any(needs_clip(parse_arm(text)) for text in request.arms):
            clip = RandomClip(int(backbone.model.config.vision_config.hidden_size), device)
        policy: PositionPolicy = backbone.paper_positions
        if request.positions != "auto":
            if request.positions not in ("preserve", "compact"):
                raise SightlineError(f"unknown position policy '{request.positions}'; use auto, preserve or compact")
            policy = request.positions  # type: ignore[assignment]
        size = real.sizes[1] if real else request.image_size or usual
        return Subject(backbone, clip, policy, size, request.text_tokens, real)

    @property
    def step(self) -> SelectStep:
        return SelectStep(self.backbone, self.clip)

    @property
    def device(self) -> torch.device:
        return self.backbone.language.device

    def arm(self, text: str, execution: str) -> Arm:
        """The arm, refused if this backbone or this way of running cannot serve it."""
        arm = runnable_arm(text, execution)
        self.step.refuse_unserved([arm])
        return arm

    def distinct(self, made_up: int) -> int:
        """How many different images there are: all of the real probes', or so many that are made up."""
        return len(self.real) if self.real else made_up

    def image(self, index: int) -> Image.Image:
        """That of a real probe, or one of smooth noise: never constant, so that no kernel meets zeros."""
        if self.real:
            return self.real.image(index)
        width, height = self.image_size
        coarse = np.random.default_rng(index).integers(0, 256, (max(2, height // 8), max(2, width // 8), 3))
        return Image.fromarray(coarse.astype(np.uint8)).resize((width, height), Image.Resampling.BILINEAR)

    @cached_property
    def question(self) -> str:
        """The usual question, with words in front until the prompt has the wanted number of text tokens."""
        question = QUESTION
        while self._text_length(question) < self.text_tokens:
            question = f"please {question}"
        return question

    def _text_length(self, question: str) -> int:
        prompt = self.backbone.prompt(question, TARGET)
        return len(prompt.head) + len(prompt.tail)

    @property
    def prompt(self) -> Prompt:
        return self.prompt_about(0)

    def prompt_about(self, image: int) -> Prompt:
        """What is asked about that image, as tokens."""
        probe = self.probe(image)
        return self.backbone.prompt(probe.question, probe.target_text)

    def probe(self, image: int, number: int = 0) -> Probe:
        """The real probe of that number, or a made-up question about a made-up image."""
        if self.real:
            return self.real.probe(image)
        return Probe(
            id=f"{image}-{number}",
            image=f"{image}.png",
            image_id=str(image),
            question=self.question,
            label="yes" if number % 2 == 0 else "no",
            target_text=TARGET,
            source_text=TARGET,
            regions=BOXES,
        )

    def over(self, arm: Arm, encoded: Sequence[Encoded], probes: Sequence[Probe] | None = None) -> ArmPass:
        """What the arm leaves for the language model of these images, without continuations behind the prompt."""
        asked = probes or [self.probe(i) for i in range(len(encoded))]
        return self.answering(Generation()).over(arm, asked, encoded)

    def answering(self, scorer: Scorer) -> Answerer:
        """How a probe under an arm becomes an answer, as in an audit."""
        return Answerer(self.backbone, scorer, clip=self.clip, positions=self.policy)


def runnable_arm(text: str, execution: str) -> Arm:
    """The arm, refused if this way of running cannot serve it, whatever the backbone."""
    arm = parse_arm(text)
    arm.refuse_execution(execution, "measure it, and the full prefix it is compared with, with --execution compiled")
    return arm


def needs_clip(arm: Arm) -> bool:
    return any(name.startswith("clip.") for name in arm.selector.needs)
