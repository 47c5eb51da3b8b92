"""The paper's own tables, each by its number: what it needs, how it is measured, what was published, what it claims.

A *study* is one folder in which they are measured. Tables ask for rows (``Need``), the study computes what is missing
once for all of them, and a table prints the published value beside the measured one in the paper's own arrangement.
"""

from sightline_paper.claims import Claim
from sightline_paper.lines import Line
from sightline_paper.models import MODELS, PaperModel
from sightline_paper.needs import Need, StudyOptions
from sightline_paper.paper_table import PAPER_TABLES, Block, PaperTable, read_table
from sightline_paper.study import Study

__all__ = [
    "MODELS", "PAPER_TABLES", "Block", "Claim", "Line", "Need", "PaperModel", "PaperTable", "Study", "StudyOptions",
    "read_table",
]  # fmt: skip
