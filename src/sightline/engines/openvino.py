"""OpenVINO GenAI: ``openvino:DIR`` or ``openvino:DIR#GPU``, a folder that ``sightline engines export`` makes.

The pipeline is the one that people ship, with the options it has by itself: on many a CPU that means arithmetic in
bfloat16, which ``facts`` say. One is another: prompts are not cached, because an answer then depends on what was asked
just before. It prunes images of Qwen2-VL, Qwen2.5-VL and Qwen3-VL with its own CDPruner and tells only how many tokens
the prompt has. A traced copy beside the export tells which (``openvino_trace``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from sightline.engines.base import ENGINES, Engine, Heard, Question, TokenGrid
from sightline.engines.openvino_folder import Export
from sightline.engines.openvino_trace import POLICIES, TRACED, NumberCode, Traced, speech_of
from sightline.errors import SightlineError

THRESHOLD = "CDPRUNER_SPLIT_THRESHOLD"
"""Environment variable that the pruner reads when a pipeline is asked for the first time, and never again."""
SETTINGS = (
    THRESHOLD, "CDPRUNER_USE_CL_KERNEL", "CDPRUNER_ENABLE_FRAME_CHUNKING", "VISION_PREPROCESS", "VISION_POS_EMBEDS",
)  # fmt: skip
"""Environment variables by which it prunes and prepares images otherwise."""
VARIANTS = {"split": "1", "paper": "0"}
PRECISIONS = {
    "inference_precision": ("INFERENCE_PRECISION_HINT", ("f32", "bf16", "f16")),
    "kv_cache_precision": ("KV_CACHE_PRECISION", ("f32", "bf16", "f16", "u8", "u4")),
}
"""Switch -> the engine's property, and what that takes."""
CHOICES = {"variant": tuple(VARIANTS), "prefix_caching": ("on", "off")} | {
    switch: values for switch, (_, values) in PRECISIONS.items()
}
TAG = "<ov_genai_image_0>"
"""The place of the image in a prompt, which the engine replaces by the model's own tokens."""
PACKAGES = ("openvino", "openvino-genai", "openvino-tokenizers")


@ENGINES.register("openvino")
class OpenVINO(Engine):
    """OpenVINO GenAI's pipeline over an exported folder, with its own CDPruner."""

    name = "openvino"
    switches: ClassVar[Mapping[str, str]] = {
        "pruning_ratio": "Percent of the visual tokens that CDPruner takes away, 0 to 100; the engine takes 100 as 0.",
        "relevance_weight": "How much the question counts in CDPruner beside diversity, 0 to 1; 0.5 if not given.",
        "variant": "split: CDPruner on either half of the image by itself, the engine's own way; paper: on the whole.",
        "prefix_caching": "on: prompts are cached, the engine's own way; off if not given, so that answers repeat.",
        "inference_precision": "Arithmetic: f32, bf16 or f16; the device's own choice if not given.",
        "kv_cache_precision": "Numbers of the cache: f32, bf16, f16, u8 or u4; the device's own choice if not given.",
    }

    def __init__(self, place: str) -> None:
        super().__init__(place)
        folder, _, device = place.partition("#")
        self.device = device or "CPU"
        self.export = Export(Path(folder))
        self.markers = 2 if self.export.qwen else 0
        self.pixel_step = self.export.edge if self.export.qwen else 1
        self._pipelines: dict[tuple[Any, ...], Any] = {}

    @property
    def model(self) -> str:
        return f"openvino:{self.export.folder.resolve().name}"

    def facts(self) -> dict[str, Any]:
        core = needed("openvino").Core()
        chosen = {}
        for switch, (property_name, _) in PRECISIONS.items():
            try:
                device = core.get_property(self.device, property_name).to_string()
                chosen[switch] = self.export.option(property_name) or device
            except RuntimeError:  # a device that has no such property, or is not there; ``load`` says so
                chosen[switch] = None
        return {
            "model_type": self.export.config.get("model_type"),
            "weight_digest": self.export.digest,
            "description_digest": self.export.description,
            "dtype": self.export.dtype,
            "device": self.device,
            **chosen,
            "prefix_caching": "off",
            "environment": {name: os.environ[name] for name in SETTINGS if name in os.environ},
            "traced": self.traces,
            "versions": {package: installed(package) for package in PACKAGES},
        }

    def check(self, switches: Mapping[str, str]) -> None:
        super().check(switches)
        for name, value in switches.items():
            if name == "pruning_ratio" and not (value.isascii() and value.isdigit() and int(value) <= 100):
                raise SightlineError(f"pruning_ratio={value}: it is a whole number of percent, 0 to 100")
            if name == "relevance_weight" and not 0 <= number(value) <= 1:
                raise SightlineError(f"relevance_weight={value}: it is a number from 0 to 1")
            allowed = CHOICES.get(name, (value,))
            if value not in allowed:
                raise SightlineError(f"{name}={value}: it is {' or '.join(allowed)}")

    def requested_keep(self, switches: Mapping[str, str]) -> float | None:
        return 1 - int(switches["pruning_ratio"]) / 100 if "pruning_ratio" in switches else None

    def pruning_arm(self, keep: float) -> str | None:
        return f"engine:pruning_ratio={round(100 * (1 - keep))}"

    def grid(self, size: tuple[int, int]) -> TokenGrid | None:
        return self.export.grid(size)

    @property
    def _traced(self) -> Path:
        return self.export.folder / TRACED

    @property
    def traces(self) -> bool:
        return self._traced.is_dir()

    @cached_property
    def _speech(self) -> NumberCode:
        return speech_of(self._traced, self.export.digest)

    @property
    def untold(self) -> Mapping[str, str]:
        untold = {"margin": "the engine tells the log-probability of the token that it chose, of no other"}
        if not self.traces:
            copy = f"`sightline engines trace {self.export.folder}` makes a copy that does"
            untold["kept_mask"] = f"the engine does not tell which tokens it kept; {copy}"
        return untold

    def load(self) -> None:
        from transformers import AutoTokenizer

        try:
            self.tokenizer = AutoTokenizer.from_pretrained(self.export.folder, local_files_only=True)
        except (OSError, ValueError) as error:
            raise SightlineError(f"the tokenizer in {self.export.folder} cannot be read: {in_a_line(error)}") from None
        if not self.tokenizer.chat_template:
            raise SightlineError(f"{self.export.folder} has no chat template; copy chat_template.jinja into it")
        self._pipeline({}, traced=False)
        if self.traces:
            self._pipeline({}, traced=True)

    def prompt(self, question: Question) -> str:
        """Under the folder's own chat template."""
        if self.tokenizer is None:
            self.load()
        text = question.text if question.image is None else TAG + question.text
        messages = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        if question.system is not None:
            messages.insert(0, {"role": "system", "content": [{"type": "text", "text": question.system}]})
        rendered: str = self.tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
        return rendered

    def text_tokens(self, question: Question) -> int | None:
        prompt = self.prompt(replace(question, image=None))
        encoded = self._pipeline({}, traced=False).get_tokenizer().encode(prompt, add_special_tokens=False)
        return int(encoded.input_ids.shape[1])

    def ask(self, question: Question) -> Heard:
        self.check(question.switches)
        self._pipeline(question.switches, traced=False)  # which the first question of its kind would wait for
        begun = perf_counter()
        answer = self._generate(question, question.longest)
        ms = (perf_counter() - begun) * 1e3
        prompt = answer.perf_metrics.get_num_input_tokens()
        generated = answer.perf_metrics.get_num_generated_tokens()
        finish = answer.finish_reasons[0].name
        stopped = finish == "STOP"
        raw = {
            "text": answer.texts[0], "score": answer.scores[0],
            "prompt_tokens": prompt, "generated_tokens": generated, "finish_reason": finish,
        }  # fmt: skip
        kept, grid = self._counted_against_the_grid(question, prompt)
        first = None
        if question.likely:
            one = answer if question.longest == 1 else self._generate(question, 1)
            first = {one.texts[0]: float(one.scores[0])}
        told = policy = None
        if kept is not None and grid is not None and self.traces:
            traced = self._trace(question, prompt)
            if len(traced.kept) != kept:
                raise SightlineError(
                    f"the traced copy was given {len(traced.kept)} visual tokens, the engine counts {kept}"
                )
            told, policy = traced.cells(grid.rows, grid.columns), traced.policy(grid.rows, grid.columns)
            raw["positions_in_words"] = POLICIES[policy]
        return Heard(
            text=answer.texts[0],
            raw=raw,
            prompt_tokens=prompt,
            tokens=generated - 1 if stopped else generated,
            cut_off=not stopped,
            loss=-float(answer.scores[0]) / max(1, generated),  # the stop token is one of them
            first=first,
            ms=ms,
            positions=policy,
            cells=told,
        )

    def _counted_against_the_grid(self, question: Question, prompt: int) -> tuple[int | None, TokenGrid | None]:
        """Visual tokens of a prompt, and the grid of its image; refused where they do not fit together."""
        grid = None if question.image is None else self.grid(question.image.size)
        text = None if grid is None else self.text_tokens(question)
        if grid is None or text is None:
            return None, grid
        kept, whole = prompt - text - self.markers, grid.rows * grid.columns
        pruned = int(question.switches.get("pruning_ratio", "0")) % 100 > 0
        if kept > whole or kept < 1 or (kept != whole and not pruned):
            raise SightlineError(
                f"OpenVINO counts {kept} visual tokens of an image that {self.export.folder}/preprocessor_config.json "
                f"divides into {grid.rows} x {grid.columns} = {whole}: its cells are not known"
            )
        return kept, grid

    def _trace(self, question: Question, tokens: int) -> Traced:
        """What the traced copy says about a prompt of so many tokens."""
        genai = needed("openvino_genai")
        spoken: list[int] = []

        class Ear(genai.StreamerBase):  # type: ignore[misc, name-defined]
            def write(self, token: int | list[int]) -> Any:
                spoken.extend([token] if isinstance(token, int) else token)
                return genai.StreamingStatus.RUNNING

            def end(self) -> None:
                return None

        self._generate(question, self._speech.length(tokens), Ear())
        return Traced.heard(spoken, self._speech)

    def _generate(self, question: Question, longest: int, ear: Any = None) -> Any:
        """The engine's answer; with an ear, that of the traced copy, whose tokens it hears."""
        import numpy as np

        genai, tensor = needed("openvino_genai"), needed("openvino").Tensor
        config = genai.GenerationConfig()
        config.max_new_tokens, config.do_sample, config.apply_chat_template, config.logprobs = longest, False, False, 1
        config.set_eos_token_id(self.export.stops[0])
        config.stop_token_ids = set(self.export.stops)
        for switch, kind in (("pruning_ratio", int), ("relevance_weight", float)):
            if switch in question.switches:
                setattr(config, switch, kind(question.switches[switch]))
        given = {} if ear is None else {"streamer": ear}
        if question.image is not None:
            given["images"] = [tensor(np.array(question.image.convert("RGB"))[None])]
        prompt = self.prompt(question)
        try:
            pipeline = self._pipeline(question.switches, traced=ear is not None)
            return pipeline.generate(prompt, generation_config=config, **given)
        except RuntimeError as error:
            raise SightlineError(f"OpenVINO did not answer: {in_a_line(error)}") from None

    def _pipeline(self, switches: Mapping[str, str], traced: bool) -> Any:
        """One for every variant and precision, loaded when it is first needed.

        The variant is pinned by a first question under its environment variable, which is then put back.
        """
        before = os.environ.get(THRESHOLD)
        threshold = VARIANTS.get(switches.get("variant", ""), before)
        options: dict[str, Any] = {
            PRECISIONS[name][0]: value for name, value in sorted(switches.items()) if name in PRECISIONS
        }
        caching = not traced and switches.get("prefix_caching") == "on"
        key = (traced, threshold or VARIANTS["split"], caching, *options.items())
        if key not in self._pipelines:
            import numpy as np

            genai, tensor = needed("openvino_genai"), needed("openvino").Tensor
            first = genai.GenerationConfig()
            first.max_new_tokens, first.apply_chat_template = 1, False
            first.set_eos_token_id(self.export.stops[0])
            if traced:  # serving from pages of a cache needs a model that has one
                options["ATTENTION_BACKEND"] = "SDPA"
            elif self.device != "NPU":  # which serves no other way
                options["scheduler_config"] = serving = genai.SchedulerConfig()
                serving.max_num_batched_tokens, serving.enable_prefix_caching = 2**63, caching
            gray = tensor(np.full((1, 64, 64, 3), 127, np.uint8))
            try:
                if threshold is not None:
                    os.environ[THRESHOLD] = threshold
                folder = self._traced if traced else self.export.folder
                pipeline = genai.VLMPipeline(str(folder), self.device, **options)
                pipeline.generate(f"{TAG}?", images=[gray], generation_config=first)
            except RuntimeError as error:
                raise SightlineError(f"OpenVINO cannot load {self.place}: {in_a_line(error)}") from None
            finally:
                if before is None:
                    os.environ.pop(THRESHOLD, None)
                else:
                    os.environ[THRESHOLD] = before
            self._pipelines[key] = pipeline
        return self._pipelines[key]


def needed(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise SightlineError("OpenVINO is not installed; `pip install 'sightline[openvino]'` does it") from None


def installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def number(value: str) -> float:
    """NaN where it is none."""
    try:
        return float(value)
    except ValueError:
        return math.nan


def in_a_line(error: Exception) -> str:
    """The last sentence of what it says: before it, the engine names places in its source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else "it gives no reason"
