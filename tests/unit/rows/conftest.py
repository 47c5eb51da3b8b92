from tests.unit.large_run import finished, run_copy

__all__ = ["finished", "run_copy"]
