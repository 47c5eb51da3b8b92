"""Kernels on any machine that has Triton, with a GPU or not: what they compute, and how many it would compile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.kernel_variants import mixed, needed

pytest.importorskip("triton", reason="Triton is not installed: it runs and compiles the kernels")


def test_kernels_do_not_grow_with_the_sizes_of_pages() -> None:
    """They differ by powers of two and by whether rows are multiples of 16, not by how many programs share a page."""
    few, many = (sum(map(len, needed(mixed(pages))[0].values())) for pages in (24, 200))
    assert few <= many <= 48


def test_kernels_compute_what_plain_code_computes() -> None:
    """In a process of its own: whether Triton interprets or compiles is settled when it is imported."""
    cases = Path(__file__).with_name("interpreted_kernels.py")
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", str(cases)]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
