"""Compiled blocks of vision towers; code that is kept from process to process."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.testing import CompileCounter
from torch._inductor.runtime.cache_dir_utils import default_cache_dir

from sightline.backbones import Backbone
from sightline.backbones.execution import FORGOTTEN_DAYS, Execution, keep_compiled, use_vision_execution
from sightline.backbones.images import Pixels
from sightline.core.prefix import Encoded
from tests.unit.backbones.named import Zoo, architecture, general, photograph

CLOSE = 1e-5
MOST = {
    "qwen2_5_vl": 1, "glm4v": 1, "mistral3": 1, "idefics3": 1, "gemma3": 2,
    "shipped-qwen3vl": 1, "shipped-llava": 2, "shipped-internvl": 2,
}  # fmt: skip
"""Graphs for images of all sizes; two where images of one shape are a batch, of one or of several."""
SIGNALS = frozenset({"vision.hidden@-2", "vision.received@1"})


@pytest.fixture(autouse=True)
def _nothing_compiled() -> None:
    torch._dynamo.reset()


def pages(backbone: Backbone, count: int) -> list[Pixels]:
    """Of different sizes, narrow and wide."""
    return [backbone.preprocess(photograph(112 + 28 * (i % 6), 112 + 28 * (i // 2 % 5), seed=i)) for i in range(count)]


def encoded(backbone: Backbone, shown: Sequence[Pixels]) -> list[Encoded]:
    """Each by itself, the first one twice in one call, and several at once where the tower takes them."""
    together = len({backbone.shared_shape(page) for page in shown[:4]}) == 1
    batches = [[page] for page in shown] + [[shown[0]] * 2] + [list(shown[:4])] * together
    return [each for batch in batches for each in backbone.encode(batch, SIGNALS)]


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.float() - theirs.float()).abs().max() / theirs.abs().max())


@pytest.mark.parametrize("name", MOST)
@torch.inference_mode()
def test_few_graphs_serve_images_of_all_sizes_and_give_the_same(name: str, zoo: Zoo) -> None:
    backbone, most = architecture(name, zoo), MOST[name]
    shown = pages(backbone, 12)
    expected = encoded(backbone, shown)
    counts = []
    for count in (3, 12):
        torch._dynamo.reset()
        counter: Any = CompileCounter()
        execution = Execution("compiled")
        use_vision_execution(backbone, execution, backend=counter, dynamic=True)
        found = encoded(backbone, shown[:count])
        counts.append((counter.frame_count, len(execution.setup_ms)))
        assert execution.note == ""
    assert counts == [(most, most)] * 2
    for ours, plain in zip(found, expected, strict=True):
        assert apart(ours.tokens, plain.tokens) < CLOSE
        for name in SIGNALS:
            assert apart(backbone.vision_signal(name, ours), backbone.vision_signal(name, plain)) < CLOSE


@torch.inference_mode()
def test_blocks_that_do_not_compile_run_as_they_are_and_say_why(zoo: Zoo, monkeypatch: pytest.MonkeyPatch) -> None:
    backbone = general(zoo("qwen2_5_vl"))
    shown = pages(backbone, 3)
    expected = encoded(backbone, shown)
    block = type(backbone.vision_blocks[0])
    forward = block.forward

    def looking(self: Any, hidden_states: Tensor, *rest: Any, **named: Any) -> Tensor:
        bright = float(hidden_states.abs().max()) > 0  # which no compiler knows
        return forward(self, hidden_states * int(bright), *rest, **named)

    monkeypatch.setattr(block, "forward", looking)
    execution = Execution("compiled")
    use_vision_execution(backbone, execution, backend="eager", dynamic=True)
    found = encoded(backbone, shown)
    said = "the blocks of its vision tower run one kernel at a time (UserError: Could not guard"
    assert execution.note.startswith(said)
    assert all(torch.equal(ours.tokens, plain.tokens) for ours, plain in zip(found, expected, strict=True))


@torch.inference_mode()
def test_compiling_leaves_no_trace_on_the_model(zoo: Zoo) -> None:
    """Blocks run themselves again afterwards, attend as before, and whoever listened to their parts still does."""
    backbone = general(zoo("mistral3"))
    (page,) = pages(backbone, 1)
    (plain,) = backbone.encode([page])
    parts = [part for block in backbone.vision_blocks for part in block.modules()]
    hooks = [dict(part._forward_hooks) for part in parts]
    assert any(hooks), "transformers listens to attention"
    use_vision_execution(backbone, Execution("compiled"), backend="eager", dynamic=True)
    (ours,) = backbone.encode([page])
    assert apart(ours.tokens, plain.tokens) < CLOSE
    assert [dict(part._forward_hooks) for part in parts] == hooks
    assert not any("forward" in part.__dict__ for part in parts)
    use_vision_execution(backbone, Execution("eager"))
    assert backbone.call_block is None


@torch.inference_mode()
def test_blocks_that_are_listened_to_run_themselves_and_others_compiled(zoo: Zoo) -> None:
    backbone, called = general(zoo("glm4v")), list[int]()

    def call(block: Any, hidden: Tensor, arguments: dict[str, Any]) -> Any:
        called.append(list(backbone.vision_blocks).index(block))
        return type(block).forward(block, hidden, **arguments)

    backbone.call_block = call
    backbone.encode(pages(backbone, 1), frozenset({"vision.received@1"}))
    assert called == [0, 2, 3]


# Folders for compiled code.


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where compiled code goes; PyTorch has chosen a folder of its own, as it does when its compiler is imported."""
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", default_cache_dir())
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    return tmp_path / "cache" / "compiled"


def test_compiled_code_lies_in_the_cache_folder_by_what_made_it(kept: Path) -> None:
    keep_compiled(torch.device("cpu"))
    (folder,) = kept.iterdir()
    assert f"torch-{torch.__version__}-" in folder.name
    assert folder.name.endswith(torch.backends.cpu.get_cpu_capability())
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(folder / "graphs")
    assert os.environ["TRITON_CACHE_DIR"] == str(folder / "kernels")


def test_folders_that_the_user_named_stay(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/mine")
    keep_compiled(torch.device("cpu"))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == "/mine"
    assert os.environ["TRITON_CACHE_DIR"].startswith(str(kept))


def test_code_of_other_makers_goes_when_nobody_has_used_it_for_long(kept: Path) -> None:
    old, recent = kept / "torch-1.0", kept / "torch-2.0"
    for folder, days in ((old, FORGOTTEN_DAYS + 1), (recent, FORGOTTEN_DAYS - 1)):
        (folder / "graphs").mkdir(parents=True)
        used = time.time() - days * 24 * 3600
        os.utime(folder, (used, used))
    keep_compiled(torch.device("cpu"))
    assert not old.exists()
    assert recent.exists()


def test_where_nobody_can_write_compiled_code_lies_where_it_did(kept: Path) -> None:
    kept.parent.write_text("no folder")
    keep_compiled(torch.device("cpu"))
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == default_cache_dir()
