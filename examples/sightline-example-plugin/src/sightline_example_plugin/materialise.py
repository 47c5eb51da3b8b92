"""The shorter prefix alone: gathering or merging visual tokens, embedding the text, laying out positions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from sightline.cost.benchmarks.base import Benchmark
from sightline.cost.request import Measurement, Request

if TYPE_CHECKING:
    from sightline.cost.subject import Subject


class MaterialiseRequest(Request):
    batch: int = Field(8, ge=1, description="Prefixes made one after the other in each sample.")
    profile: bool = False


class Materialise(Benchmark[MaterialiseRequest]):
    name = "materialise"
    title = "building shortened prefixes"
    description = "Time to build a batch of prefixes once it is known which tokens stay, full and pruned."
    caption = "Median milliseconds per batch with the 10th and 90th percentile of all samples; selection is not in it."
    request = MaterialiseRequest
    arms = ("full", "target:0.2")
    executions = ("eager",)
    inside: ClassVar[Mapping[str, str]] = {
        "materialise": "tokens, text embeddings and positions of every prefix; no vision, no selection, no layer",
    }
    main = "materialise"

    def measure(self, request: MaterialiseRequest, subject: Subject) -> Iterator[Measurement]:
        from sightline.device.work import Stopwatch

        backbone = subject.backbone
        images = [subject.image(i) for i in range(request.batch)]
        for text in request.arms:
            arm = subject.arm(text, request.execution)
            pixels = [backbone.preprocess(image, budget=arm.image_budget) for image in images]
            encoded = [backbone.encode([each], backbone.form(arm.selector).needs)[0] for each in pixels]
            passed = subject.over(arm, encoded)
            watches = []
            for _ in range(request.warm_up + request.repeats):
                watches.append(Stopwatch(subject.device))
                prefixes = [passed.prefix(i) for i in range(request.batch)]
                watches[-1].stop()
            yield Measurement(
                arm=arm.text,
                batch=request.batch,
                visual_tokens=encoded[0].full_n,
                kept_tokens=prefixes[0].k,
                length=prefixes[0].embeds.shape[0],
                samples_ms={"materialise": [watch.ms for watch in watches[request.warm_up :]]},
            )
