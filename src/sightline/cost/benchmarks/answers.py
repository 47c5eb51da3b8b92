"""Answers in words: the audit's way against the model's own ``generate``, all timed in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result
from sightline.cost.benchmarks.sweep import SweepRequest
from sightline.cost.request import option, positive_numbers, with_default
from sightline.cost.spread import OF_CEILING, SET_UP, Line, Quantity, Say

if TYPE_CHECKING:
    pass


def lengths_of_answers(text: str) -> list[dict[str, Any]]:
    return [{"answer_tokens": count} for count in positive_numbers(text, "--tokens")]


@dataclass(frozen=True)
class AnswersRequest(SweepRequest):
    images: int = option(128, "Images of the sweep.", minimum=1)
    probes: int = option(1, "Questions per image.", minimum=1)
    one_sample_rows: int = 0
    """Hides the sweep's: here ``stock`` says it."""
    answer_tokens: int = option(
        8, "Tokens of every answer; several, separated by commas, are measured one after the other.",
        flag="--tokens", read=lengths_of_answers, usual="8,32",
    )  # fmt: skip
    slots: int = option(64, "Sequences that a step continues side by side on a GPU.", minimum=1)
    cached: int = option(300, "Tokens that every sequence holds where a single step is timed.", minimum=1)
    stock: int = option(4, "Answers that the model's own generate is timed on, one by one.", minimum=0)
    stock_batch: int = option(32, "Answers that it is timed on in one batch; 0 leaves both out.", minimum=0)
    warm_up: int = with_default("warm_up", 1)


@BENCHMARKS.register("answers")
class Answers(Benchmark[AnswersRequest]):
    name = "answers"
    timing = "sightline.cost.timing.time_answers:measure_answers"
    title = "answers in words against the model's own generate"
    description = "Answers per second under several arms, against the model's own generate; all timed in one process."
    caption = (
        "Answers per second of the audit's loop over all arms, and of the model's own generate with the full prefix, "
        "one by one and in one batch. No answer ends early."
    )
    request = AnswersRequest
    arms = (
        "full:1.0",
        "target:0.2",
        "target:0.3",
        "target:0.4",
        "target:0.5",
        "target:0.6",
        "target:0.7",
        "target:0.8",
    )
    usual_executions = ("compiled",)
    executions = ("eager", "compiled")
    together = True
    planless = True
    inside: ClassVar[Mapping[str, str]] = {
        "engine": "whole sweep: preprocessing (overlapped on the host), vision once per image, selection, "
        "materialising, prefixes in batches, all tokens of all answers; start-up (imports, weights, compiling, "
        "capturing, one warm-up shard) excluded",
        "stock_one": "per answer: the checkpoint's image processor and the model's own generate, full prefix",
        "stock_batch": "the same for a batch of equally long prompts, per batch; image processor excluded",
        "step": "one token for every slot, each with as many cached tokens as --cached says",
    }
    main = "engine"

    def batching(self, request: dict[str, Any]) -> str:
        return f"{request['answer_tokens']} tokens"

    def batch_words(self, results: Sequence[Result]) -> str:
        request = results[0]["request"]
        return (
            f"{request['images']} images with {request['probes']} questions each; prefixes up to "
            f"{request['batch_tokens']} tokens at a time, {request['slots']} answers side by side"
        )

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        return {"tokens": result["request"]["answer_tokens"], **point["extra"]}

    def columns(self, results: Sequence[Result]) -> list[Quantity]:
        return [
            Quantity("tokens", "Tokens", "count", help="Of every answer."),
            Quantity("answers", "Answers", "count"),
            Quantity("answers_per_s", "Answers/s", "number", help="Sightline, over all arms."),
            Quantity("stock_one_per_s", "Stock, one by one", "number"),
            Quantity("stock_batch_per_s", "Stock, batched", "number"),
            Quantity("to_stock_one", "Ratio to one by one", "ratio"),
            Quantity("to_stock_batch", "Ratio to batched", "ratio"),
            OF_CEILING,
            Quantity("step_ms", "Step, ms", "number", help="One token for every slot."),
            Quantity("step_gb_per_s", "Step, GB/s", "number", help="Weights and caches over its time."),
            Quantity("of_bandwidth", "Of bandwidth", "percent", help="Of what reading a large tensor reaches."),
            SET_UP,
        ]

    def reading(self, lines: Sequence[Line], say: Say) -> str:
        parts = []
        for line in lines:
            stock = line.get("stock_batch_per_s")
            beside = f", the model's own generate in batches {say(stock, 'number')}" if stock == stock and stock else ""
            parts.append(
                f"with {line['tokens']} tokens each, {say(line['answers_per_s'], 'number')} answers per second{beside}"
            )
        return f"{'; '.join(parts)}.".capitalize()
