"""From rows to numbers that can be trusted: metrics, intervals, paired differences, exact tests, correlations.

Start at ``summaries.arm_summary`` and ``summaries.paired_differences``; every definition they use is in
``metrics.METRICS``, one idea a file.
Plain numpy and scipy throughout: a run can be re-analysed on a machine that has neither a GPU nor torch.
"""
