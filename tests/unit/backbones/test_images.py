"""Images on their way to the model: options of every architecture, bytes resized as Pillow and torch do."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from sightline.backbones import BACKBONES, images, load_backbone, options_for
from sightline.backbones.images import Size, by_tensors, on_host, resizer, rows_first, taps
from sightline.backbones.internvl import InternVLOptions
from sightline.backbones.qwen3_vl import Qwen3VLOptions
from sightline.errors import SightlineError
from tests.refusals import Refused
from tests.warm_python import run_python

# Image options belong to an architecture: its own are taken and checked, those of others refused in one line.


def test_nothing_is_changed_unless_asked_for() -> None:
    assert {"internvl", "llava", "qwen3_vl"} <= set(BACKBONES)
    for name in BACKBONES:
        assert options_for(name).as_dict() == {}, name


def test_every_option_says_in_a_sentence_what_it_does() -> None:
    for name in BACKBONES:
        for option, sentence in BACKBONES.get(name).image_options.described().items():
            assert sentence.endswith("."), f"{name}: {option}"


def test_the_artifact_profile_sets_what_published_numbers_were_made_with_and_given_options_win(tmp_path: Path) -> None:
    published = {"min_pixels": 802816, "max_pixels": 802816, "jpeg_quality": 85, "first_resize_factor": 28}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llava"}))
    fewer: dict[str, Any] = {"min_pixels": 200704, "max_pixels": 200704}
    for source, asked, expected in [
        ("qwen3_vl", {}, published),
        ("qwen3_vl", {**fewer, "jpeg_quality": None}, {**fewer, "first_resize_factor": 28}),
        ("llava", {}, {"crop_blind": True}),
        (tmp_path, {}, {"crop_blind": True}),  # before weights are looked for
        ("llava", {"crop_blind": False}, {}),
        ("internvl", {}, {}),
    ]:
        assert options_for(source, "artifact", asked).as_dict() == expected, (source, asked)  # type: ignore[arg-type]
    assert options_for("internvl", given=InternVLOptions(max_tiles=2)) == InternVLOptions(max_tiles=2)


@pytest.mark.parametrize(("name", "given", "line"), [
    ("llava", {"max_pixels": 100352}, "llava has no image option 'max_pixels'; it has crop_blind"),
    ("internvl", {"max_pixel": 3}, "internvl has no image option 'max_pixel'; it has min_tiles, max_tiles, tensor_"),
    ("qwen3_vl", {"max_pixels": 0}, "image option max_pixels=0: must be at least 1"),
    ("qwen3_vl", {"max_pixels": "many"}, "image option max_pixels=many: is a whole number"),
    ("internvl", {"min_tiles": 4, "max_tiles": 2}, "min_tiles = 4 is above max_tiles = 2"),
    ("qwen9_vl", {}, "has no image-text type 'qwen9_vl'; a newer one may know it"),
    ("internvl", Qwen3VLOptions(), "internvl takes InternVLOptions, not Qwen3VLOptions"),
    ("qwen3_vl artifact", {"max_pixels": 9}, "min_pixels = 802816 is above max_pixels = 9 (the profile sets min_pix"),
])  # fmt: skip
def test_what_cannot_be_honoured_is_refused_in_one_line(name: str, given: Any, line: str, tmp_path: Path) -> None:
    source = name.removesuffix(" artifact")
    profile: Literal["paper", "artifact"] = "paper" if source == name else "artifact"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": source}))
    calls: list[Callable[[], object]] = [lambda: options_for(source, profile, given)]
    calls += [lambda: load_backbone(str(tmp_path), options=given)] * (source == "llava")  # before its weights
    for call in calls:
        with pytest.raises(SightlineError) as caught:
            call()
        assert line in str(caught.value)
        assert "\n" not in str(caught.value)


def test_another_packages_architecture_is_found_by_its_entry_point(tmp_path: Path) -> None:
    """Installed means: its metadata lies on the path."""
    (tmp_path / "elsewhere.py").write_text(
        "from sightline.backbones.llava import Llava\n\n\nclass Elsewhere(Llava):\n    paper_positions = 'preserve'\n"
    )
    metadata = tmp_path / "elsewhere-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[sightline.backbones]\nelse_where = elsewhere:Elsewhere\n")
    script = (
        "from sightline.backbones import BACKBONES, options_for\n"
        "print(*BACKBONES, BACKBONES.get('else_where').paper_positions, *options_for('else_where').described())\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]), "OMP_NUM_THREADS": "1"}
    done = run_python(["-c", script], env=environment)
    assert done.stdout.split() == [*sorted(["else_where", *BACKBONES]), "preserve", "crop_blind"], done.stderr


# The tensor resize gives Pillow's bytes, and torch's own bytes in torch's arithmetic, whatever the sizes.


HOST = torch.device("cpu")
BICUBIC, BILINEAR = int(Image.Resampling.BICUBIC), int(Image.Resampling.BILINEAR)
EDGES = st.one_of(st.integers(1, 6), st.integers(1, 300))
SIZES = st.tuples(EDGES, EDGES)


def noise(size: Size, seed: int, harsh: bool) -> Tensor:
    """Bytes that leave no weight unseen; black and white ones overshoot, so that clipping shows."""
    drawn = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return torch.from_numpy(np.where(drawn > 127, 255, 0).astype(np.uint8) if harsh else drawn)


@settings(max_examples=150)
@given(SIZES, SIZES, st.sampled_from([BICUBIC, BILINEAR]), st.integers(0, 99), st.booleans())
@example((1, 1), (300, 300), BICUBIC, 0, False)
@example((300, 300), (1, 1), BICUBIC, 0, False)
@example((1, 300), (300, 1), BICUBIC, 0, True)
@example((300, 1), (1, 300), BICUBIC, 0, True)
@example((200, 1), (64, 32), BICUBIC, 0, True)
@example((100, 100), (50, 75), BICUBIC, 0, True)
@example((100, 100), (50, 76), BICUBIC, 0, True)
@example((64, 64), (64, 64), BILINEAR, 0, False)
def test_bytes_are_pillows_and_torchs_in_torchs_arithmetic(
    source: Size, target: Size, kind: int, seed: int, harsh: bool
) -> None:
    image = noise(source, seed, harsh)
    ours = by_tensors(source, target, kind, HOST, "pillow")(image)
    expected = Image.fromarray(image.numpy()).resize(target[::-1], Image.Resampling(kind))
    assert ours.dtype == torch.uint8
    assert torch.equal(ours, torch.from_numpy(np.array(expected)))
    ours = by_tensors(source, target, BICUBIC, HOST, "torch")(image)
    assert torch.equal(ours, on_host(target, BICUBIC, "torch")(image))


def test_a_host_image_is_resized_by_pillow_itself_and_an_unknown_filter_is_refused_elsewhere(refused: Refused) -> None:
    image, lanczos = noise((40, 70), 1, False), Image.Resampling.LANCZOS
    expected = np.array(Image.fromarray(image.numpy()).resize((20, 31), lanczos))
    assert torch.equal(resizer((40, 70), (31, 20), int(lanczos), HOST)(image), torch.from_numpy(expected))
    refused("filter 4", by_tensors, (8, 8), (4, 4), int(Image.Resampling.BOX), HOST, "pillow")


def test_the_order_of_passes_depends_on_what_shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    for orders, target, arithmetic, first in [
        (True, (50, 76), "pillow", True),
        (True, (50, 75), "pillow", False),
        (True, (101, 400), "pillow", False),
        (True, (50, 76), "torch", False),
        (False, (50, 76), "pillow", False),
    ]:
        monkeypatch.setattr(images, "_pillow_orders_passes", lambda orders=orders: orders)
        assert rows_first((100, 100), target, arithmetic) == first, (orders, target, arithmetic)  # type: ignore[arg-type]


def test_tables_are_made_once_and_weights_sum_to_one() -> None:
    table = taps(640, 448, BICUBIC, "pillow", HOST)
    assert taps(640, 448, BICUBIC, "pillow", HOST) is table
    assert (table.weight.sum(0) - (1 << table.bits)).abs().max() <= len(table.weight)
