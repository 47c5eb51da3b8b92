"""Triton kernels for the loops that a GPU would otherwise spend launching: one launch per selection.

Every kernel makes the picks of the tensor code it stands in for, which launches it; that code runs wherever
``scores.kernels_run`` says no: on a CPU, without Triton, or for more tokens than fit a program's registers.
"""
