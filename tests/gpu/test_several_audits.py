"""On a GPU: audits follow one another in one process, and a capture does not mind what other threads do meanwhile."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from sightline.auditing.audit import audit
from sightline.auditing.config import read_config
from sightline.core.probe import Probe
from sightline.device.graphs import capture
from sightline.probes.probe_file import ProbeSet, write_probes
from sightline.rows import Run

AUDITS = 3


def open_probes(images: Path) -> ProbeSet:
    """One about every image: enough that images are still being prepared when a step is captured."""
    return ProbeSet(
        tuple(
            Probe(
                id=f"open-{image.stem}",
                image=str(image.relative_to(images)),
                image_id=image.stem,
                question="What is written on the sign?",
                label="open",
                target_text="",
                source_text="",
                regions=((0.1, 0.1, 0.3, 0.2),),
                roles=("answer_value",),
                answers=("exit",),
                task="textvqa",
            )
            for image in sorted(images.rglob("*.jpg"))
        )
    )


@pytest.mark.parametrize("execution", ["compiled", "graph"])
@pytest.mark.parametrize("name", ["qwen3vl", "llava"])
def test_open_audits_follow_one_another_in_one_process(
    data: Path, tmp_path: Path, name: str, execution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    images = data / "mini_textocr"
    write_probes(tmp_path / "probes.jsonl", open_probes(images))

    def audited(number: int) -> Run:
        settings = {
            "model": str(data / "tiny" / name),
            "probes": str(tmp_path / "probes.jsonl"),
            "images": str(images),
            "arms": ["full", "target:0.3", "random:0.3"],
            "out": str(tmp_path / f"run-{number}"),
            "device": "cuda",
            "dtype": "bfloat16",
            "execution": execution,
            "shard_images": 2,
            "matched_controls": False,
        }
        return audit(read_config(None, settings))

    texts = [audited(number).frame().set_index(["arm", "probe_id"])["answer"] for number in range(AUDITS)]
    assert len(texts[0]) == 3 * len(open_probes(images).probes)
    for later in texts[1:]:
        assert later.equals(texts[0])
    with capsys.disabled():
        print(f"\n{name}, {execution}: {AUDITS} audits of {len(texts[0])} rows in one process, all rows alike")


def test_a_capture_goes_on_while_another_thread_asks_for_pinned_memory() -> None:
    device = torch.device("cuda")
    weight, states = torch.randn(2048, 2048, device=device), torch.ones(64, 2048, device=device)
    over, pinned = Event(), [0]

    def pin() -> None:
        held = []
        for size in count(1):  # always larger than before, so that none comes from what was freed
            if over.is_set():
                return
            held.append(torch.empty(size * 65_536, dtype=torch.uint8, pin_memory=True))
            held = held[-4:]
            pinned[0] += 1

    def call() -> torch.Tensor:
        made = states
        before = pinned[0]
        for _ in range(100):
            made = torch.tanh(made @ weight)
        while other.is_alive() and pinned[0] < before + 2:
            pass  # the thread is sure to have asked during the capture
        return made

    other = Thread(target=pin, daemon=True)
    other.start()
    try:
        replay, _ = capture(call, device)
    finally:
        over.set()
        other.join()
    expected = states
    for _ in range(100):
        expected = torch.tanh(expected @ weight)
    assert torch.equal(replay(), expected)
