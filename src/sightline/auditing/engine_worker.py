"""Runs of an engine: the same loop, rows and folder, with requests in the place of a model's forward.

The loop asks a backbone to encode images and an answerer to answer arms. Here ``ShownImages`` hands images over as they
are and counts their tokens, and ``EngineAnswerer`` puts every question to the engine, several at a time. Whatever the
engine gave is written down before anything is made of it (``Requests``): nothing is asked twice, however often a run is
killed.
"""

from __future__ import annotations

import io
import json
import os
import platform
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from functools import partial
from hashlib import sha256
from math import exp, log, sqrt
from pathlib import Path
from time import perf_counter, time_ns
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numpy as np
import torch
from PIL import Image

from sightline.answering.answerer import Answered, Answerer, Collect
from sightline.answering.materialise import SelectStep, Trace
from sightline.answering.scorers import SCORERS, Scorer
from sightline.answering.scorers.spoken import SpokenScorer, Utterance
from sightline.answering.scorers.yes_no import YesNo
from sightline.arms.arm import Arm
from sightline.auditing.config import AuditConfig
from sightline.auditing.worker import Worker, manifest_settings
from sightline.backbones.base import Backbone
from sightline.backbones.images import Fit, ImageOptions, Pixels
from sightline.backbones.language import Likelihood
from sightline.backbones.prompting import Prompting
from sightline.core.prefix import Encoded
from sightline.core.probe import Probe
from sightline.core.selection import Budget, Method
from sightline.device.work import Limit
from sightline.engines.base import JPEG, Engine, Heard, Question
from sightline.errors import OutageError, SightlineError, located
from sightline.geometry.cells import grid_cells
from sightline.geometry.coverage import Sampling
from sightline.places.listing import is_remote
from sightline.probes.images import stored_as
from sightline.progress import waiting_for
from sightline.version import __version__

T = TypeVar("T")
REQUESTS = "requests"
"""Folder of a run, a file of JSON lines for every process: what was asked, and all that was given back."""
UNSEEN = "an engine does not show it"
STRIP = 256
"""Rows of pixels that are digested at a time."""


class Requests:
    """An engine's answers, kept in the run folder as they come; what is there already is not asked again."""

    def __init__(self, engine: Engine, folder: Path) -> None:
        self.engine = engine
        self._known: dict[str, tuple[Heard, float]] = {}
        self._lock = threading.Lock()
        self._outage: OutageError | None = None
        """After one the run ends: what still waits for its turn is not tried for minutes first."""
        self._turns: dict[str, threading.Lock] = {}
        """Of every question: whoever asks the same meanwhile waits for its answer."""
        # A file of its own even where a process in a container has the number of the one that was killed there.
        self._file = folder / REQUESTS / f"{socket.gethostname()}-{os.getpid()}-{time_ns():x}.jsonl"
        for file in sorted(self._file.parent.glob("*.jsonl")):
            for line in file.read_bytes().split(b"\n"):
                try:
                    found = json.loads(line)
                    self._known[found["key"]] = Heard(**found["heard"]), float(found["ms"])
                except (ValueError, KeyError, TypeError):  # a line that a killed process did not finish
                    continue

    def ask(self, question: Question) -> tuple[Heard, float]:
        """The answer, and the milliseconds it took when it was asked."""
        key = request_key(question)
        with self._turns.setdefault(key, threading.Lock()):
            if key not in self._known:
                if self._outage is not None:
                    raise self._outage
                begun = perf_counter()
                try:
                    heard = self.engine.ask(question)
                except OutageError as error:
                    self._outage = error
                    raise
                taken = (perf_counter() - begun) * 1e3
                self._keep(key, question, heard, taken if heard.ms is None else heard.ms)
        return self._known[key]

    def _keep(self, key: str, question: Question, heard: Heard, ms: float) -> None:
        asked = {"text": question.text, "system": question.system, "switches": dict(question.switches)}
        line = json.dumps({"key": key, "asked": asked, "ms": ms, "heard": asdict(heard)})
        with self._lock:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with open(self._file, "a", encoding="ascii") as file:
                file.write(line + "\n")
            self._known[key] = heard, ms


def request_key(question: Question) -> str:
    """SHA-256 of all that is asked, pixels included."""
    digest = sha256()
    if question.image is not None:
        width, height = question.image.size
        digest.update(repr(question.image.size).encode())
        for top in range(0, height, STRIP):  # a large page has no second copy for it
            digest.update(question.image.crop((0, top, width, min(top + STRIP, height))).tobytes())
    said = {**asdict(replace(question, image=None)), "switches": sorted(question.switches.items())}
    digest.update(json.dumps(said, sort_keys=True).encode())
    return digest.hexdigest()


class ShownImages:
    """What the loop asks of a backbone about images, of an engine: they are handed over whole, and counted."""

    def __init__(self, engine: Engine, ask: Callable[[Question], Heard]) -> None:
        self.engine, self._ask = engine, ask
        self.options = ImageOptions()
        self.no_cells = None if engine.traces else UNSEEN
        self.language = SimpleNamespace(device=torch.device("cpu"), dtype=torch.float32)
        self.limits = {"patches": Limit(), "pairs": Limit(), "tokens": Limit()}
        self.pool = ThreadPoolExecutor(engine.parallel, thread_name_prefix="request")
        self._counts: dict[str, int | None] = {}

    def shared_shape(self, pixels: Pixels) -> tuple[int, ...]:
        return ()

    def preprocess(self, image: Image.Image, into: Any = None, *, budget: Budget | None = None) -> Pixels:
        """The image's bytes; under a ``budget`` of an image shown smaller, in both directions alike."""
        begun, size, fit = perf_counter(), image.size, None
        shown = image.convert("RGB")
        if budget is not None:
            n = self.count(shown)
            if not n:
                raise SightlineError(f"{self.engine.name} does not count tokens, so no image can be fitted to a budget")
            fit = Fit(self.options, n, n)
            shown = shown.resize(self._smaller(size, budget.resolve(n) / n), Image.Resampling.BICUBIC)
        data = torch.from_numpy(np.array(shown))
        return Pixels(data, (1, *data.shape[:2]), size, (perf_counter() - begun) * 1e3, fit)

    def _smaller(self, size: tuple[int, int], share: float) -> tuple[int, int]:
        """Sides of an image with this share of the pixels, at most, in the engine's own steps."""
        step = self.engine.pixel_step
        width, height = (max(step, int(side * sqrt(share) / step + 1e-9) * step) for side in size)
        return width, height

    def count(self, image: Image.Image) -> int | None:
        """N of an image by the engine's rule, else by what it adds to a short prompt, asked once."""
        key = request_key(Question("", image))
        if key not in self._counts:
            if (grid := self.engine.grid(image.size)) is not None:
                self._counts[key] = grid.rows * grid.columns
            else:
                question = Question("What is this?", image, longest=1)
                self._counts[key] = kept_tokens(self.engine, question, self._ask(question), self._ask)
        return self._counts[key]

    def form(self, method: Method) -> Method:
        return method

    def encode(self, batch: Sequence[Pixels], needs: Iterable[str] = ()) -> list[Encoded]:
        return wait_for_all([self.pool.submit(self._encoded, item) for item in batch])

    def _encoded(self, pixels: Pixels) -> Encoded:
        image = Image.fromarray(pixels.data.numpy())
        n, grid = self.count(image), self.engine.grid(image.size)
        cells, sampling = np.full((max(n or 0, 1), 4), np.nan), None
        layout: tuple[tuple[int, int], ...] = ()
        if self.engine.traces and grid is not None:
            cells, layout = grid_cells(grid.rows, grid.columns), ((grid.rows, grid.columns),)
            sampling = Sampling(pixels.size, grid.token_pixels)
        usual = None if pixels.fit is None else pixels.fit.usual_n
        return Encoded(
            torch.empty(n or 0, 0), (), cells, layout, sampling, {"image": pixels.data}, usual_n=usual,
            usual_slots=usual, preprocess_ms=pixels.preprocess_ms,
        )  # fmt: skip

    def fit(self, size: tuple[int, int], budget: Budget) -> None:
        """Whether an image can be shown so small is seen when its tokens are counted."""

    def under(self, options: ImageOptions) -> ShownImages:
        return self

    def shown_size(self, size: tuple[int, int]) -> tuple[int, int]:
        return size


def wait_for_all(waiting: Sequence[Future[T]]) -> list[T]:
    """What each comes to; where one fails, once those under way have ended: they were asked already, and are kept."""
    try:
        return [each.result() for each in waiting]
    except BaseException:
        for each in waiting:
            each.cancel()
        wait(waiting)
        raise


class EngineAnswerer(Answerer):
    """Every probe of an arm as a request; as many at a time as the engine takes."""

    def __init__(self, requests: Requests, scorer: Scorer) -> None:
        self.engine, self._requests, self.scorer = requests.engine, requests, scorer
        shown = ShownImages(self.engine, self._ask)
        self.backbone, self._pool = cast(Backbone, shown), shown.pool
        self._lock, self._newest = threading.Lock(), cast("tuple[Encoded, Image.Image] | None", None)
        self.step = cast(SelectStep, SimpleNamespace(queues=False))
        self._system = self.engine.system(in_words=scorer.in_words)
        if hasattr(scorer, "tokenizer"):  # it counts the tokens of a text
            scorer.tokenizer = self.engine.tokenizer

    def launch(
        self,
        arm: Arm,
        probes: Sequence[Probe],
        encoded: Sequence[Encoded],
        batch_tokens: int,
        step: SelectStep | None = None,
    ) -> Collect:
        asked = zip(probes, encoded, strict=True)
        return partial(wait_for_all, [self._pool.submit(self._answer, arm, probe, image) for probe, image in asked])

    def _ask(self, question: Question) -> Heard:
        return self._requests.ask(question)[0]

    def question(self, probe: Probe, arm: Arm, image: Image.Image) -> Question:
        """What is asked about an image for a probe under an arm."""
        switches = arm.switches
        if (quality := switches.pop(JPEG, None)) is not None:
            image = Image.open(io.BytesIO(stored_as(image, "JPEG", quality=int(quality)))).convert("RGB")
        text = Prompting.asked(probe.question, in_words=self.scorer.in_words)
        longest = getattr(self.scorer, "max_new_tokens", 1)
        return Question(text, image, self._system, switches, longest, likely=isinstance(self.scorer, YesNo))

    def _image(self, encoded: Encoded) -> Image.Image:
        """One for all questions about it that are asked side by side: a large page has half a gigabyte."""
        with self._lock:
            if self._newest is None or self._newest[0] is not encoded:
                self._newest = encoded, Image.fromarray(encoded.captured["image"].numpy())
            return self._newest[1]

    def _answer(self, arm: Arm, probe: Probe, encoded: Encoded) -> Answered:
        question = self.question(probe, arm, self._image(encoded))
        heard, ms = self._requests.ask(question)
        k = kept_tokens(self.engine, question, heard, self._ask)
        refuse_unpruned(arm, self.engine, encoded, k)
        mask = np.zeros(len(encoded.cells), dtype=bool)
        if encoded.placed:
            if heard.cells is None or len(heard.cells) != k:
                told = "no cells" if heard.cells is None else f"{len(heard.cells)} cells"
                raise SightlineError(f"arm '{arm.text}', probe {probe.id}: {k} tokens were counted and {told} traced")
            mask[list(heard.cells)] = True
        pruned = heard.prompt_tokens or 0
        full = pruned + encoded.full_n - k if k is not None else 0
        trace = Trace(mask, mask, None, k or 0, None, full, pruned, 0.0, 0.0, 0.0)
        values = self.scorer.judge(probe, self._result(probe, heard), arm.text)
        return Answered(values, trace, ms, positions=heard.positions)

    def _result(self, probe: Probe, heard: Heard) -> Any:
        """What the scorer judges."""
        if isinstance(self.scorer, SpokenScorer):
            # A letter that an engine cut in two has no place in any file.
            text = heard.text.strip().encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            return Utterance(text, heard.tokens, heard.loss, heard.cut_off)
        return yes_and_no(probe, heard, self.engine.name)


def kept_tokens(engine: Engine, question: Question, heard: Heard, ask: Callable[[Question], Heard]) -> int | None:
    """K: what the prompt that was read has beyond its text and the image's markers; None where nobody counts them.

    The text is counted here where the engine's tokenizer is at hand, else ``ask``ed about without the image.
    """
    text = engine.text_tokens(question)
    if text is None:
        text = ask(Question(question.text, system=question.system, longest=1)).prompt_tokens
    if heard.prompt_tokens is None or text is None or (kept := heard.prompt_tokens - text - engine.markers) < 0:
        return None
    return kept


def refuse_unpruned(arm: Arm, engine: Engine, encoded: Encoded, k: int | None) -> None:
    """An arm that was asked to keep fewer tokens and kept all of them, or has more, is an error, not a row."""
    if k is not None and k > encoded.full_n > 0:
        raise SightlineError(
            f"arm '{arm.text}' has {k} visual tokens, more than the {encoded.full_n} that the same image has under no "
            "switch, with which everything is compared; leave the arm out, or start the server with what it sets"
        )
    asked = arm.budget.keep if arm.selector.resizes else engine.requested_keep(arm.switches)
    if k is None or asked is None or asked >= 1.0 or k < encoded.full_n:
        return
    how = "makes as many tokens of a smaller image" if arm.selector.resizes else "does nothing with this switch"
    raise SightlineError(
        f"arm '{arm.text}' was to keep {asked:.0%} of {encoded.full_n} visual tokens and all of them reached the "
        f"language model: {engine.name} {how}; leave the arm out"
    )


def yes_and_no(probe: Probe, heard: Heard, engine: str) -> list[Likelihood]:
    """Yes and no by the log-probabilities of the first token, all spellings of a word together."""
    found = heard.first or {}
    best = max(found, key=lambda token: found[token], default="")
    result = []
    for word in ("yes", "no"):
        likely = [value for token, value in found.items() if token.strip().lower() == word]
        if not likely:
            raise SightlineError(
                f"probe '{probe.id}': {engine} does not say how likely '{word}' is; --scorer generation goes by words"
            )
        top = max(likely)  # exp of -9999, which servers say for "never", would be 0
        result.append(Likelihood(-top - log(sum(exp(each - top) for each in likely)), best.strip().lower() == word))
    return result


def engine_arms(engine: Engine, image: Image.Image, keep: Sequence[float]) -> list[str]:
    """What an engine is audited with: nothing pruned, its own pruning at each budget, and the page shown smaller.

    The last only where ``image`` really becomes fewer tokens by it.
    """
    shown = ShownImages(engine, engine.ask)
    arms = ["full", *(arm for share in keep if (arm := engine.pruning_arm(share)) is not None)]
    n = shown.count(image.convert("RGB"))
    for share in keep if n else ():
        smaller = Image.fromarray(shown.preprocess(image, budget=Budget.ratio(share)).data.numpy())
        if (shown.count(smaller) or n or 0) < (n or 0):
            arms.append(f"resize:{share:g}")
    return arms


class EngineWorker(Worker):
    """An engine in the place of a loaded model."""

    def __init__(self, config: AuditConfig, engine: Engine) -> None:
        self.config, self.engine = config, engine
        self.noted = set()
        self._setup: list[float] = []
        refuse_options(config, engine)
        with waiting_for(f"opening {engine.model}"):
            engine.load()
        scorer = SCORERS.get(config.scorer)()
        if isinstance(scorer, SpokenScorer):
            scorer.max_new_tokens = config.longest_answer
        self.answerer = EngineAnswerer(Requests(engine, Path(str(config.out))), scorer)

    def settings(self, recorded: Mapping[str, Any]) -> dict[str, Any]:
        settings = engine_settings(self.config, self.engine)
        self.row_facts = {**settings, "conditions": {"engine_digest": settings["engine_digest"]}}
        return settings

    def refuse_unserved(self, arms: Sequence[Arm], sizes: Mapping[str, tuple[int, int]]) -> None:
        refuse_arms(arms, self.engine)

    @property
    def setup_ms(self) -> list[float]:
        return self._setup

    @property
    def batch_images(self) -> int:
        """Their tokens are counted side by side."""
        return self.config.shard_images


def refuse_options(config: AuditConfig, engine: Engine) -> None:
    """Options that only a model whose layers are seen can honour."""
    if is_remote(config.out):
        raise SightlineError("an engine's answers are written down one by one: give --out a folder of this machine")
    for field in ("clip", "image_options", "keep_scores"):
        if getattr(config, field):
            raise SightlineError(
                f"--{field.replace('_', '-')} is for models whose layers are seen, not for {engine.name}"
            )
    scorer = SCORERS.get(config.scorer)
    if not (issubclass(scorer, SpokenScorer) or scorer is YesNo):
        raise SightlineError(
            f"--scorer {config.scorer} needs likelihoods of whole answers, which {engine.name} does not give; "
            "choose open, transcription, generation or yes_no"
        )
    if scorer is YesNo and (reason := engine.untold.get("margin")):
        raise SightlineError(f"--scorer yes_no: {reason}; --scorer generation goes by words")


def refuse_arms(arms: Iterable[Arm], engine: Engine) -> None:
    """Arms of an engine are what it offers: nothing pruned, its own switches, images changed before it sees them."""
    for arm in arms:
        selector = arm.selector
        if arm.policy is not None or not (arm.deployed or selector.resizes or selector.role == "reference"):
            raise SightlineError(
                f"arm '{arm.text}' needs the model's layers, which {engine.name} does not show; arms of an engine are "
                f"full, resize:KEEP and engine:SWITCH=VALUE ({', '.join((*engine.switches, JPEG))})"
            )
        if arm.intervention is not None and (arm.intervention.on_mask or arm.intervention.view == "orig"):
            raise SightlineError(f"arm '{arm.text}': {engine.name} shows no mask to change; change the image instead")
        switches = arm.switches
        quality = switches.pop(JPEG, None)
        if quality is not None and not (quality.isdecimal() and 1 <= int(quality) <= 100):
            raise SightlineError(f"arm '{arm.text}': {JPEG}={quality} is no quality from 1 to 100")
        with located(f"arm '{arm.text}'"):
            engine.check(switches)


def engine_settings(config: AuditConfig, engine: Engine) -> dict[str, Any]:
    """What the run folder has to agree with; what the engine cannot tell is None, with the reason under ``engine``."""
    own = engine.facts()
    told = {name: own.pop(name, None) for name in ("model_type", "weight_digest", "dtype", "device")}
    facts: dict[str, Any] = {
        "model": engine.model,
        **told,
        "scorer": config.scorer,
        "positions": None,
        "box_source": config.box_source,
        "profile": config.profile,
        "attention": None,
        "versions": {"sightline": __version__, "python": platform.python_version(), **own.get("versions", {})},
        "served_by": f"engine {engine.name}",
        "engine_digest": sha256(json.dumps(own, sort_keys=True).encode()).hexdigest()[:8],
    }
    untold = {name: UNSEEN for name, value in facts.items() if value is None}
    if engine.traces:
        untold["positions"] = "they are traced, and stand in the rows"
    facts["engine"] = {"name": engine.name, **own, "untold": {**untold, **engine.untold}}
    return manifest_settings(config, facts, ImageOptions())
