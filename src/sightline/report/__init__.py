"""Rows become conclusions and pictures: report, comparison and gate, from a run folder alone."""
