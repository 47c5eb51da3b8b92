from tests.unit.report.conftest import run as run
