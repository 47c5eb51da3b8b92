"""From rows to numbers that can be trusted: metrics, intervals, paired differences, exact tests, correlations.

Start at ``table.arm_summary`` and ``table.paired_differences``; every definition they use is in ``metrics.METRICS``.
Plain numpy and scipy throughout: a run can be re-analysed on a machine that has neither a GPU nor torch.
"""
