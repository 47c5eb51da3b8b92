"""A selector, a budget, arguments and perhaps an intervention: one column of an audit; and which columns a run has."""

from sightline.arms.arm import Arm, parse_arm, parse_arms

__all__ = ["Arm", "parse_arm", "parse_arms"]
