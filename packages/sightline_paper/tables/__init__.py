"""The paper's tables, one file each, registered by their numbers; ``paper_table`` says how such a file reads."""

from pathlib import Path

from sightline_paper.paper_table import PAPER_TABLES, read_table

for _file in sorted(Path(__file__).parent.glob("*.yaml")):
    _table = read_table(_file)
    PAPER_TABLES.add(_table.number, _table)
