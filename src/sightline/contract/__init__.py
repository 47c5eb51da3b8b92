"""What Sightline relies on in objects that it did not write, as checks for the tests of the package that did.

    from sightline.contract import check_format, check_metric, check_selector

    def test_my_selector_keeps_its_promises():
        check_selector(Mine())

Each raises an ``AssertionError`` with a sentence. No model is loaded, except by ``check_backbone``, which is given a
checkpoint: ``write_checkpoint`` makes a tiny one.
"""

from sightline.contract.backbones import check_backbone, tiny_tokenizer, write_checkpoint
from sightline.contract.plugins import check_format, check_metric, check_selector

__all__ = ["check_backbone", "check_format", "check_metric", "check_selector", "tiny_tokenizer", "write_checkpoint"]
