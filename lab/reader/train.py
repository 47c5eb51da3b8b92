"""Trains the reader in legs: ``python -m lab.reader.train --minutes 9 --progress 0:0.5 --out DIR``.

From scratch it learns to answer yes/no questions; with ``--open`` a trained one learns to answer open questions too.
Needs torch, transformers, numpy and Pillow only. A leg moves the schedule from one point of 0..1 to another within its
wall-clock minutes, however fast the machine is, and can be resumed by the next leg from its output folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from lab.reader import record
from lab.reader.atlas import build_atlas, glyph_table
from lab.reader.evaluate import draw_held_out, evaluate, render
from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.objectives import Heads, draw_keep, local_targets
from lab.reader.open_check import draw_open_held_out, evaluate_open, render_open
from lab.reader.raster import draw_batch, plan
from lab.reader.samples import SampleBatches
from lab.reader.schedule import HOLD_SHARE, OPEN_HOLD_SHARE, REWARM, VISION_SHARE, WARM_UP, Clock, learning_rate
from lab.reader.state import load_checkpoint, load_moments, load_weights, read_state, save_state
from lab.reader.step import Losses, Steps
from sightline.errors import SightlineError
from sightline.places.writing import refuse_unusable_place

OPEN_SHARE = 0.7
"""Images of a leg on open questions that are asked them; the others keep up the yes/no answers."""
BOTH_SHARE = 0.5
"""Images that are asked open questions where both kinds are learned from scratch."""
SAVE_SECONDS = 150.0


class Trainer:
    """One leg: model, data, optimiser, schedule, log."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.began = time.monotonic()
        self.out = Path(args.out)
        self.curves: list[dict[str, float]] = []
        self.checks: list[dict[str, Any]] = []
        self.history: dict[str, Any] = {"steps": 0, "next_seed": args.seed * 100_000_000, "legs": []}
        tensors: dict[str, Tensor] = {}
        if args.resume:
            tensors, self.history = read_state(Path(args.resume))
            self.curves, self.checks = self.history.pop("curves"), self.history.pop("checks")
        # Processes are forked before the device is touched; workers inherit the glyph metrics.
        self.held_out = draw_held_out(args.eval_images, "development", args.workers)
        asks_open = args.open or args.both
        self.open_held_out = draw_open_held_out(args.eval_images, "development", args.workers) if asks_open else None
        glyph_table("train")
        self.batches = self._start_workers()
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.set_float32_matmul_precision("high")
        self.form = form = FORMS[args.form]
        model = form.model(args.preset, args.seed)
        config = model.config
        torch.manual_seed(args.seed + 1)
        widths = config.vision_config.hidden_size, config.text_config.hidden_size
        heads = Heads(*widths, form.units_per_state, page=form.has_page)
        self.module = nn.ModuleDict({"model": model, "heads": heads}).to(self.device)
        if args.language_only:
            self.module.requires_grad_(False)
            model.model.language_model.layers.requires_grad_(True)
            model.model.language_model.norm.requires_grad_(True)
        self.optimizer = self._build_optimizer()
        if args.open and not tensors:
            load_checkpoint(Path(args.start or form.shipped), model)
            heads.settle()
        if tensors:
            load_weights(tensors, self.module)
            load_moments(tensors, self.module, self.optimizer, self.history["steps"])
        self.steps = Steps(
            form, self.module["model"], heads.to(self.device), self.device, args.mixed, silence=args.silence
        )
        self.atlas = torch.from_numpy(build_atlas("train")).to(self.device)
        self.losses: dict[str, Callable[..., Losses]] = {
            "vision": self.steps.vision,
            "joint": self.steps.joint,
            "mixture": self.steps.mixture,
            "language": self.steps.language,
        }
        self.called: set[str] = set()
        if args.compile:
            self.losses = {name: torch.compile(step, dynamic=False) for name, step in self.losses.items()}
        torch.manual_seed(args.seed + 2 + self.history["steps"])

    def _start_workers(self) -> Iterator[Tensor]:
        args = self.args
        open_share = OPEN_SHARE if args.open else BOTH_SHARE if args.both else 0.0
        loader = DataLoader(
            SampleBatches(args.batch, self.history["next_seed"], open_share),
            batch_size=None,
            num_workers=args.workers,
            prefetch_factor=2 if args.workers else None,
            pin_memory=torch.cuda.is_available(),
        )
        return iter(loader)

    def _build_optimizer(self) -> torch.optim.Optimizer:
        decayed = [parameter for parameter in self.module.parameters() if parameter.ndim > 1]
        plain = [parameter for parameter in self.module.parameters() if parameter.ndim <= 1]
        groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=self.args.lr, betas=(0.9, 0.98), fused=self.device.type == "cuda")

    def run(self) -> None:
        args = self.args
        start, end = (float(part) for part in args.progress.split(":"))
        deadline = self.began + args.minutes * 60 - args.reserve
        clock = Clock(start, end, deadline)
        stage_step = self.history.get("stage_step", 0)
        stage = ""
        saved = checked = time.monotonic()
        size = sum(parameter.numel() for parameter in self.steps.forward.model.parameters()) / 1e6
        self.say(f"device {self.device}, {size:.2f} M parameters")
        done = self.history["steps"]
        while not clock.over or self.history["steps"] == done:  # a leg takes at least one step
            now_stage = self.stage_at(clock.progress)
            if now_stage != stage:
                before = self.history.get("stage")
                fresh = before is None or (before == "vision") != (now_stage == "vision")
                stage, stage_step = now_stage, 0 if fresh else max(stage_step, WARM_UP)
                self.history["stage"] = stage
                resumed = 0 if not fresh else REWARM
            shares = (0.0, OPEN_HOLD_SHARE) if args.open else (VISION_SHARE, HOLD_SHARE)
            rate = learning_rate(clock.progress, stage_step, args.lr, *shares) * min(1.0, (resumed + 1) / REWARM)
            first = stage not in self.called
            losses = self.step(stage, rate)
            stage_step += 1
            resumed += 1
            clock.tick(pause=first)
            if self.history["steps"] % args.log_every == 0 or first:
                self.log(stage, clock.progress, rate, losses)
            if time.monotonic() - saved > SAVE_SECONDS:
                self.save(clock.progress, stage_step)
                saved = time.monotonic()
            if stage != "vision" and time.monotonic() - checked > args.eval_seconds:
                self.check(clock.progress, images=min(64, args.eval_images))
                checked = time.monotonic()
                clock.tick(pause=True)
        told = ("progress", "minutes", "batch", "lr", "language_only", "open", "both", "silence")
        self.history["legs"].append({name: getattr(args, name) for name in told} | {"device": self.device_name})
        self.save(clock.progress, stage_step)
        self.finish(clock.progress)

    def stage_at(self, progress: float) -> str:
        if self.args.open:
            return "mixture"
        return "vision" if progress < VISION_SHARE else "language" if self.args.language_only else "joint"

    def step(self, stage: str, rate: float) -> Losses:
        """Draws a batch on the device, computes the stage's loss, updates the weights."""
        rows = next(self.batches)
        with torch.no_grad():
            sample = record.unpack(rows.to(self.device, non_blocking=True))
            images = draw_batch(self.atlas, sample, plan(rows, self.device))
        inputs: tuple[Any, ...] = (images, sample)
        if stage != "language":
            inputs += (local_targets(sample, self.form.side),)
        if stage != "vision":
            inputs += draw_keep(len(images), self.form.tokens, self.device)
        losses = self.compute(stage, inputs)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(losses["loss"])
        used = [parameter for parameter in self.module.parameters() if parameter.grad is not None]
        nn.utils.clip_grad_norm_(used, 1.0)
        self.optimizer.step()
        self.history["steps"] += 1
        self.history["next_seed"] += len(images)
        return losses

    def compute(self, stage: str, inputs: tuple[Any, ...]) -> Losses:
        """The compiled loss; the plain one from then on if compilation fails."""
        if stage in self.called or not self.args.compile:
            self.called.add(stage)
            return self.losses[stage](*inputs)
        self.called.add(stage)
        try:
            losses = self.losses[stage](*inputs)
            torch.autograd.backward(losses["loss"])
            return self.losses[stage](*inputs)
        except Exception as problem:
            self.say(f"compilation of the {stage} step failed, going on without: {str(problem)[:400]}")
            self.losses[stage] = getattr(self.steps, stage)
            return self.losses[stage](*inputs)

    def log(self, stage: str, progress: float, rate: float, losses: Losses) -> None:
        values = {name: round(value.item(), 4) for name, value in losses.items()}
        seconds = time.monotonic() - self.began
        done = self.history["steps"]
        speed = (
            self.args.batch
            * (done - getattr(self, "_logged", done - 1))
            / max(1e-3, seconds - getattr(self, "_logged_at", 0.0))
        )
        self._logged, self._logged_at = done, seconds
        self.curves.append({"step": done, "progress": round(progress, 4), "joint": float(stage != "vision"), **values})
        shown = " ".join(f"{name} {value:.3f}" for name, value in values.items())
        self.say(f"{seconds:6.1f}s step {done} {stage} at {progress:.3f} lr {rate:.1e} {speed:.0f} img/s {shown}")
        if not math.isfinite(values["loss"]):
            raise SightlineError(f"training diverged at step {done}: the loss is {values['loss']}; lower --lr")

    def check(self, progress: float, images: int | None = None) -> dict[str, Any]:
        """Tables on development scenes: yes/no answers, and open ones where they are trained."""
        held_out = self.held_out if images is None else self.held_out.first(2 * images)
        with self.steps.mixed():
            table = evaluate(self.steps.forward, held_out)
        found = {"step": self.history["steps"], "progress": progress, "probes": len(held_out.probes), "arms": table}
        self.say(f"held-out scenes, {len(held_out.probes)} probes, at {progress:.3f}\n{render(table)}")
        if self.open_held_out is not None:
            asked = self.open_held_out if images is None else self.open_held_out.first(2 * images)
            with self.steps.mixed():
                found["open"] = evaluate_open(self.steps.forward, asked)
            self.say(f"held-out scenes, {len(asked.questions)} open questions\n{render_open(found['open'])}")
        self.checks.append(found)
        return found

    def save(self, progress: float, stage_step: int) -> None:
        extra = {"progress": progress, "stage_step": stage_step, "preset": self.args.preset, "seed": self.args.seed}
        extra["form"] = self.form.name
        save_state(
            self.out, self.module, self.optimizer, self.history | extra | {"curves": self.curves, "checks": self.checks}
        )

    def finish(self, progress: float) -> None:
        """The last check uses the weights as they are saved, in bfloat16 precision."""
        with torch.no_grad():
            for parameter in self.module.parameters():
                parameter.copy_(parameter.to(torch.bfloat16))
        final = self.check(progress)
        metrics = {
            "form": self.form.name,
            "parameters": sum(parameter.numel() for parameter in self.steps.forward.model.parameters()),
            "history": self.history,
            "curves": self.curves,
            "checks": self.checks,
            "final": {name: value for name, value in final.items() if name not in ("step", "progress")},
            "torch": str(torch.__version__),
            "device": self.device_name,
        }
        (self.out / "metrics.json").write_text(json.dumps(metrics), encoding="utf-8")

    @property
    def device_name(self) -> str:
        return torch.cuda.get_device_name() if self.device.type == "cuda" else "CPU"

    def say(self, text: str) -> None:
        print(text, flush=True)


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lab train", description=__doc__.partition("\n\n")[2] if __doc__ else "", allow_abbrev=False
    )
    switch, on_a_gpu = argparse.BooleanOptionalAction, torch.cuda.is_available()
    add = parser.add_argument
    add("--out", required=True, help="folder for the training state and metrics.json")
    add("--resume", help="--out of the leg before")
    add("--minutes", type=float, default=9.0, help="wall-clock minutes of this leg, all included (%(default)s)")
    add("--progress", default="0:1", metavar="FROM:TO", help="part of the schedule that this leg covers, in 0..1")
    add("--reserve", type=float, default=40.0, help="seconds kept for saving and the last check (%(default)s)")
    add = parser.add_argument_group("what is trained").add_argument
    add("--form", choices=sorted(FORMS), default=QWEN3_VL.name, help="architecture of the model (%(default)s)")
    add("--preset", choices=sorted(QWEN3_VL.presets), default="full", help="size of the model (%(default)s)")
    add("--language-only", action="store_true", help="train the language layers; vision tower and embeddings stay")
    add("--both", action="store_true", help="ask half of the images open questions from the start")
    add("--open", action="store_true", help="teach a trained reader to answer open questions too")
    silence = "with --open or --both: where no cell of an answer is left, train to say nothing"
    add("--silence", action="store_true", help=silence)
    add("--start", help="checkpoint that --open starts from (the shipped reader of that form)")
    add = parser.add_argument_group("steps").add_argument
    add("--batch", type=int, default=96, help="pages per step (%(default)s)")
    add("--lr", type=float, default=1e-3, help="peak of the learning rate (%(default)s)")
    add("--seed", type=int, default=1, help="seed of pages and weights (%(default)s)")
    add = parser.add_argument_group("speed").add_argument
    workers = max(0, (os.cpu_count() or 2) - 2)
    add("--workers", type=int, default=workers, help="processes that draw pages (two fewer than cores)")
    add("--compile", action=switch, default=on_a_gpu, help="compile the steps (on a GPU)")
    add("--mixed", action=switch, default=on_a_gpu, help="matrix products in bfloat16 (on a GPU)")
    add = parser.add_argument_group("checks on the way").add_argument
    add("--log-every", type=int, default=100, help="steps between two lines (%(default)s)")
    add("--eval-images", type=int, default=256, help="held-out pages of a check (%(default)s)")
    add("--eval-seconds", type=float, default=120.0, help="seconds between two checks (%(default)s)")
    args = parser.parse_args(argv)
    _refuse_unusable(args)
    return args


def _refuse_unusable(args: argparse.Namespace) -> None:
    """Says what is wrong before anything is drawn or loaded."""
    refuse_unusable_place(Path(args.out))
    start, colon, end = args.progress.partition(":")
    try:
        covered = bool(colon) and 0.0 <= float(start) < float(end) <= 1.0
    except ValueError:
        covered = False
    if not covered:
        raise SightlineError(f"--progress {args.progress} is no part of the schedule; write FROM:TO, such as 0:0.5")
    for name in ("minutes", "reserve", "lr", "eval_seconds"):
        value = getattr(args, name)
        if not (math.isfinite(value) and value >= 0 and (value > 0 or name == "reserve")):
            raise SightlineError(f"--{name.replace('_', '-')} {value} must be a positive number")
    for name, least in (("batch", 1), ("workers", 0), ("seed", 0), ("log_every", 1), ("eval_images", 1)):
        if getattr(args, name) < least:
            raise SightlineError(f"--{name.replace('_', '-')} {getattr(args, name)} must be at least {least}")


def main(argv: list[str] | None = None) -> None:
    Trainer(parse(argv)).run()


if __name__ == "__main__":
    main()
