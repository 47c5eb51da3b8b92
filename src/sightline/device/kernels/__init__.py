"""Triton kernels that stand in for a library's where the library is slow."""
