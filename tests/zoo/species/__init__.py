"""The named architectures by ``model_type``, one file per family."""

from tests.zoo.species import gemma, glm, idefics, internvl, llava, mistral, qwen
from tests.zoo.specimen import Species

FAMILIES = (qwen, llava, idefics, gemma, mistral, internvl, glm)
NAMED: dict[str, Species] = {name: species for family in FAMILIES for name, species in family.SPECIES.items()}
