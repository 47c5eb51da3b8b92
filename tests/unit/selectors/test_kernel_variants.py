"""Pages of all sizes are served by few kernels: what Triton would compile is counted, on any machine that has it."""

from __future__ import annotations

import pytest
from benchmarks.kernel_variants import mixed, needed

pytest.importorskip("triton", reason="Triton is not installed: it counts what it would compile")


def test_kernels_do_not_grow_with_the_sizes_of_pages() -> None:
    """They differ by powers of two and by whether rows are multiples of 16, not by how many programs share a page."""
    few, many = (sum(map(len, needed(mixed(pages))[0].values())) for pages in (24, 200))
    assert few <= many <= 48
