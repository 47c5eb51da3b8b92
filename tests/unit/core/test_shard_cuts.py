from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sightline.core.row import cut_shards


def test_images_bound_a_shard_as_they_always_did() -> None:
    cuts = list(cut_shards([3, 1, 2, 5, 1], images=2, probes=None))
    assert [[part.image for part in cut] for cut in cuts] == [[0, 1], [2, 3], [4]]
    assert all(part.start == 0 for cut in cuts for part in cut)


def test_an_image_with_more_probes_than_a_shard_fills_several() -> None:
    cuts = [[tuple(part) for part in cut] for cut in cut_shards([2, 10, 1, 1, 1], images=8, probes=4)]
    assert cuts == [[(0, 0, 2)], [(1, 0, 4)], [(1, 4, 8)], [(1, 8, 10), (2, 0, 1), (3, 0, 1)], [(4, 0, 1)]]


@given(st.lists(st.integers(1, 40)), st.integers(1, 5), st.none() | st.integers(1, 12))
def test_every_probe_is_in_one_shard_and_none_is_too_large(sizes: list[int], images: int, probes: int | None) -> None:
    cuts = list(cut_shards(sizes, images, probes))
    found = [(part.image, place) for cut in cuts for part in cut for place in range(part.start, part.stop)]
    assert found == [(image, place) for image, size in enumerate(sizes) for place in range(size)]
    assert all(0 < len(cut) <= images for cut in cuts)
    if probes is not None:
        assert all(sum(part.stop - part.start for part in cut) <= probes for cut in cuts)
        divided = {part.image for cut in cuts for part in cut if part.stop - part.start < sizes[part.image]}
        assert all(sizes[image] > probes for image in divided)
