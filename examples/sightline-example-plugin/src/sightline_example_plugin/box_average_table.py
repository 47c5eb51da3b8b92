"""A table as a paper about ``box_average`` might print it: two lines on the embedded reader's kind of model.

All that it says stands in the file beside this one.
"""

from __future__ import annotations

from pathlib import Path

from sightline_paper import read_table

BOX_AVERAGE_TABLE = read_table(Path(__file__).with_suffix(".yaml"))
