"""How many tokens does this question need? Rules that give every sample its own budget, one file each."""

from sightline.policies.base import POLICIES, LevelAnswer, Noticed, Policy, Sight, TuningSample

__all__ = ["POLICIES", "LevelAnswer", "Noticed", "Policy", "Sight", "TuningSample"]
