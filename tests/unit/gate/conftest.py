from __future__ import annotations

from tests.unit.report.conftest import run as run
