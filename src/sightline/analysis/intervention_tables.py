"""One table per intervention, from the rows of a run (``run.frame()``) or of several runs under one another.

Every function is pure, returns a pandas DataFrame and raises a SightlineError of one line when its rows are not there.
Intervals resample images. Each stands in a module of its own; this one gathers them.
"""

from sightline.analysis.box_source_table import box_source_table
from sightline.analysis.construct import conditional_table, construct_validity_table, scale_strata_table
from sightline.analysis.deletion_table import deletion_table, logit_drop_table
from sightline.analysis.edit_region_table import edit_region_table
from sightline.analysis.image_dependence_table import image_dependence_table
from sightline.analysis.occlusion_table import occlusion_table
from sightline.analysis.position_table import position_policy_table
from sightline.analysis.shuffled_table import shuffled_table
from sightline.analysis.text_replacement_table import text_replacement_models_table, text_replacement_table

__all__ = [
    "box_source_table",
    "conditional_table",
    "construct_validity_table",
    "deletion_table",
    "edit_region_table",
    "image_dependence_table",
    "logit_drop_table",
    "occlusion_table",
    "position_policy_table",
    "scale_strata_table",
    "shuffled_table",
    "text_replacement_models_table",
    "text_replacement_table",
]
