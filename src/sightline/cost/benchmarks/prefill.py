"""The language layers over a batch of prefixes: time, throughput, memory, up to the largest batch that fits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from sightline.core.flags import Flag
from sightline.cost.benchmarks.base import BENCHMARKS, Benchmark, Result, in_inference_mode, in_words_of
from sightline.cost.card import model_name
from sightline.cost.published import EFFICIENCY, PREFILL_BATCH, published_key
from sightline.cost.request import Measurement, ProbedRequest, positive_numbers, words_of
from sightline.cost.spread import BatchCurves

if TYPE_CHECKING:
    from sightline.arms.arm import Arm
    from sightline.backbones.execution import Execution
    from sightline.core.prefix import Encoded, Prefix
    from sightline.cost.subject import Subject


def batch_sizes(text: str) -> list[dict[str, Any]]:
    """``1,32,max``: a request per size, and one whose batch grows."""
    words = words_of(text)
    numbers = ",".join(word for word in words if word != "max")
    fixed: list[dict[str, Any]] = []
    if numbers or "max" not in words:
        fixed = [{"batch": size} for size in positive_numbers(numbers, "--batch")]
    return fixed + ([{"batch": 1, "grow": True}] if "max" in words else [])


class PrefillRequest(ProbedRequest):
    batch: Annotated[int, Flag(read=batch_sizes, usual="1,32")] = Field(
        1, ge=1, description="Comma-separated batch sizes; max doubles until memory runs out."
    )
    grow: bool = False
    """Doubles the batch from ``batch`` until memory runs out."""
    largest: int = Field(4096, ge=1, description="Where --batch max stops in any case.")

    @property
    def most_probes(self) -> int:
        return self.batch


@BENCHMARKS.register("prefill")
@in_words_of(__file__)
class Prefill(Benchmark[PrefillRequest]):
    name = "prefill"
    request = PrefillRequest
    usual_executions = ("eager", "compiled")
    main = "prefill"
    chart = BatchCurves()

    def measure(self, request: PrefillRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.answering.materialise import all_needs
        from sightline.backbones.execution import use_execution
        from sightline.cost.subject import DISTINCT
        from sightline.device.work import free_memory, is_out_of_memory

        arms = [subject.arm(text, request.execution) for text in request.arms]
        execution = use_execution(subject.backbone.language, request.execution, dynamic=False, bucket=None)
        backbone, needs = subject.backbone, all_needs(arms, subject.backbone)
        drawn = [subject.image(i) for i in range(min(subject.distinct(DISTINCT), request.batch))]
        images = {
            budget: [backbone.encode([backbone.preprocess(image, budget=budget)], needs)[0] for image in drawn]
            for budget in {arm.image_budget for arm in arms}
        }
        for arm in arms:
            encoded = images[arm.image_budget]
            batch = request.batch
            while True:
                point: Measurement | None = None
                try:
                    point = one_batch(request, subject, execution, arm, encoded, batch)
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                if point is None:
                    free_memory()
                    prefix = subject.over(arm, encoded[:1]).prefix(0)
                    sizes = _sizes(arm, encoded[:1], [prefix])
                    yield Measurement(arm.text, batch, *sizes, {}, extra={"out_of_memory": True})
                    break
                yield point
                batch *= 2
                if not request.grow or batch > request.largest:
                    break

    def figures(self, point: dict[str, Any], result: Result) -> dict[str, Any]:
        """What the paper has for this model, arm and batch."""
        key = published_key(model_name(result["request"]), point["arm"])
        if key is None or key not in EFFICIENCY or point["batch"] != PREFILL_BATCH[key[0]]:
            return {}
        return {"published_speedup": EFFICIENCY[key].prefill, "published_saved": EFFICIENCY[key].memory_saved}

    def batching(self, request: dict[str, Any]) -> str:
        return "growing" if request["grow"] else "fixed"

    def batch_words(self, results: Sequence[Result]) -> str:
        fixed, growing = (
            super(Prefill, self).batch_words([each for each in results if self.batching(each["request"]) == batching])
            for batching in ("fixed", "growing")
        )
        return "; ".join(filter(None, (fixed, growing and f"growing in one process: {growing}")))


@in_inference_mode
def one_batch(
    request: PrefillRequest, subject: Subject, execution: Execution, arm: Arm, encoded: list[Encoded], batch: int
) -> Measurement:
    """All samples of one batch of prefixes, and what memory they took."""
    from sightline.cost.machine import PeakMemory, language_flops, profiled
    from sightline.device.work import Stopwatch

    language = subject.backbone.language
    passed = subject.over(arm, encoded)
    distinct = [passed.prefix(i) for i in range(len(encoded))]
    order = [i % len(distinct) for i in range(batch)]
    prefixes = [distinct[i] for i in order]
    device = subject.device
    memory = PeakMemory(device)
    setups = len(execution.setup_ms)
    pairs = []
    for repeat in range(request.warm_up + request.repeats):
        collating = Stopwatch(device)
        collated = language.collate(prefixes) if language.plain else None
        collating.stop()
        running = Stopwatch(device)
        cutter = passed.cutter(order, prefixes)  # which may read the prompts first
        if collated is None:  # the model's own decoder is handed prefixes as they are
            language.read(prefixes, cutter)
        else:
            language.run(replace(collated), cutter)
        running.stop()
        if repeat >= request.warm_up:
            pairs.append((collating, running))
        elif repeat == request.warm_up - 1 and request.execution != "graph":
            memory.warmed_up()
    collated_ms, read_ms = ([watch.ms for watch in watches] for watches in zip(*pairs, strict=True))
    used = memory.read()
    n, kept, length = _sizes(arm, encoded, distinct)
    layers = [passed.layer_lengths(i) for i in range(len(distinct))]
    counted = {each: language_flops(subject.backbone, each) for lengths in layers for each in set(lengths)}
    flops = sum(fmean(counted[each] for each in layers[i]) for i in order)
    profile: dict[str, Any] = {}
    if request.profile:
        profile["profile"] = profiled(lambda: language.read(prefixes, passed.cutter(order, prefixes)), device)
    return Measurement(
        arm=arm.text,
        batch=batch,
        visual_tokens=n,
        kept_tokens=kept,
        length=length,
        samples_ms={"collate": collated_ms, "prefill": read_ms},
        flops={"prefill": flops},
        memory=used,
        setup_ms=execution.setup_ms[setups:],
        extra=profile,
    )


def _sizes(arm: Arm, encoded: Sequence[Encoded], prefixes: Sequence[Prefix]) -> tuple[int, int, int]:
    """Visual tokens, how many of them are kept, positions of the prefix: the mean over images that differ."""
    pairs = list(zip(encoded, prefixes, strict=True))
    kept = fmean(arm.budget.total(image.layout) if arm.inside else prefix.k for image, prefix in pairs)
    visual, length = fmean(image.full_n for image in encoded), fmean(prefix.embeds.shape[0] for prefix in prefixes)
    return round(visual), round(kept), round(length)
