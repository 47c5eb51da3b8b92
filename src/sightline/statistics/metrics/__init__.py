"""Every metric, defined once and one idea a file: point estimates, bootstraps, reports and gates all read ``METRICS``.

A file registers its metrics with the decorator ``@metric``; nothing else lists them. A metric says by itself what it is
called, which probes count, which columns it needs and in which tables it stands.
"""

from sightline.statistics.metrics.answers import LOW_COVERAGE, ZERO_COVERAGE, auroc, ece_bin, expected_calibration_error
from sightline.statistics.metrics.base import (
    METRICS,
    POPULATIONS,
    Metric,
    MetricRegistry,
    metric,
    metric_named,
    metrics_shown_in,
    spelling,
)
from sightline.statistics.metrics.sums import answer_metrics, finish, point, probe_sums, why_not

__all__ = [
    "LOW_COVERAGE",
    "METRICS",
    "POPULATIONS",
    "ZERO_COVERAGE",
    "Metric",
    "MetricRegistry",
    "answer_metrics",
    "auroc",
    "ece_bin",
    "expected_calibration_error",
    "finish",
    "metric",
    "metric_named",
    "metrics_shown_in",
    "point",
    "probe_sums",
    "spelling",
    "why_not",
]
