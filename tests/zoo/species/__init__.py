"""The named architectures by ``model_type``, one file per family."""

from tests.zoo.species import llava, qwen
from tests.zoo.specimen import Species

NAMED: dict[str, Species] = {**qwen.SPECIES, **llava.SPECIES}
