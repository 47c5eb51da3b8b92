"""``sightline doctor``: is what is audited the model itself? One file per question, all of them put to one page."""

from sightline.checks.doctor.all_checks import examine
from sightline.checks.doctor.examination import PROBE, Check, Examination, drawn_image

__all__ = ["PROBE", "Check", "Examination", "drawn_image", "examine"]
