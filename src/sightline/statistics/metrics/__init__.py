"""Every metric, defined once and one idea a file: point estimates, bootstraps, reports and gates all read ``METRICS``.

A file registers its metrics with the decorator ``@metric``; nothing else lists them. A metric says by itself what it is
called, which probes count, which columns it needs and in which tables it stands.
"""

from sightline.statistics.metrics.auroc import auroc
from sightline.statistics.metrics.base import METRICS, Metric, MetricRegistry, metric, metric_named, metrics_shown_in
from sightline.statistics.metrics.confidence import ece_bin, expected_calibration_error
from sightline.statistics.metrics.populations import POPULATIONS
from sightline.statistics.metrics.sums import answer_metrics, finish, point, probe_sums, why_not
from sightline.statistics.metrics.unsupported import LOW_COVERAGE, ZERO_COVERAGE

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
    "why_not",
]
