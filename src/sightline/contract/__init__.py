"""What Sightline relies on in objects that it did not write, as checks for the tests of the package that did.

    from sightline.contract import check_format, check_metric, check_selector

    def test_my_selector_keeps_its_promises():
        check_selector(Mine())

Each raises an ``AssertionError`` with a sentence. No model is loaded.
"""

from sightline.contract.of_formats import check_format
from sightline.contract.of_metrics import check_metric
from sightline.contract.of_selectors import check_selector

__all__ = ["check_format", "check_metric", "check_selector"]
