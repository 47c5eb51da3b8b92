"""What can be known of the vLLM example without vLLM: kept cells, where they stand, how answers are compared."""

import gzip
import json
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch
from benchmarks.vllm_rows import Asked, Compared, Spoken, compare, same_size

from tests.conftest import REPOSITORY


@pytest.fixture(scope="module")
def cells() -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(REPOSITORY / "examples" / "vllm_masks" / "src")
        return import_module("vllm_masks.cells")


def test_an_exported_file_is_read_unless_a_mask_merges(cells: ModuleType, tmp_path: Path) -> None:
    text = json.dumps({"sample_id": "a", "n_tokens": 6, "layout": [[2, 3]], "kept_indices": [1, 4]}) + "\n"
    plain, packed, merged = (tmp_path / name for name in ("masks.jsonl", "masks.jsonl.gz", "merged.jsonl"))
    plain.write_bytes(text.encode())
    packed.write_bytes(gzip.compress(text.encode()))
    merged.write_text('{"sample_id": "a", "groups": []}')
    assert cells.read_masks(plain) == cells.read_masks(packed) == {"a": [1, 4]}
    with pytest.raises(ValueError, match="merge"):
        cells.read_masks(merged)


def test_without_a_mask_every_cell_is_kept_and_lists_must_fit_images(cells: ModuleType) -> None:
    assert [each.tolist() for each in cells.cells_of(None, [3, 1])] == [[0, 1, 2], [0]]
    assert [each.tolist() for each in cells.cells_of([[0, 2], [0]], [3, 1])] == [[0, 2], [0]]
    assert cells.of_missing([[0, 2], [0]], [True, False]) == [[0]]
    for call in (lambda: cells.cells_of([[0]], [3, 3]), lambda: cells.of_missing([[0]], [True, False])):
        with pytest.raises(ValueError, match="1 lists for 2 images"):
            call()


def test_cells_that_an_image_does_not_have_are_refused(cells: ModuleType) -> None:
    for given, said in (
        ([2, 1], "rising"),
        ([1, 1], "rising"),
        ([3], r"0\.\.2"),
        ([-1, 0], "rising"),
        ([], "at least one"),
    ):
        with pytest.raises(ValueError, match=said):
            cells.cells_of([given], [3])


def test_kept_cells_stand_where_they_stood(cells: ModuleType) -> None:
    """Of t t A0 A1 A2 A3 t B0 B1 B2 t the cells A1, A3 and B2 are kept: t t A1 A3 t B2 t."""
    spans = [(2, 4, torch.tensor([1, 3])), (5, 3, torch.tensor([2]))]
    offsets, places = cells.unpruned(spans, 7)
    assert offsets == [2, 7]
    assert places.tolist() == [0, 1, 3, 5, 6, 9, 10]


def spoken(*tokens: int, likely: float = -0.5) -> Spoken:
    return Spoken(" ".join(map(str, tokens)), list(tokens), [likely] * len(tokens), [0.1 * token for token in tokens])


def test_answers_are_compared_up_to_the_first_token_that_differs() -> None:
    for theirs, found in (
        (spoken(1, 2, 3), Compared(True, 0.0, None)),
        (spoken(1, 2, 3, likely=-0.75), Compared(True, 0.25, None)),
        (spoken(1, 4, 3, likely=-0.75), Compared(False, 0.25, (1, 0.2))),
        (spoken(4), Compared(False, 0.0, (0, 0.1))),
    ):
        assert compare(spoken(1, 2, 3), theirs) == found


def test_rows_of_one_length_are_asked_together() -> None:
    rows = [Asked("", "", "", [], {"multi_modal_data": {"image": torch.zeros(1, k, 4)}}, spoken(1)) for k in (5, 3, 5)]
    assert same_size(rows) == [[0, 2], [1]]
