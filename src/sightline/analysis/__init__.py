"""Rows into findings: thresholds, paired comparisons, and the tables of interventions and controls."""
