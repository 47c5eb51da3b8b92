"""Does the evidence matter? One change made on purpose to an arm, one file each. A file registers itself."""

from sightline.interventions.base import INTERVENTIONS, Intervention, families, parse_intervention, split_arm

__all__ = ["INTERVENTIONS", "Intervention", "families", "parse_intervention", "split_arm"]
