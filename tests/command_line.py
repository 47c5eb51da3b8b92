"""The command line within this process: what a command prints, and the code that it ends with."""

from typer.testing import CliRunner, Result

from sightline.cli import app


def sightline(*words: object, code: int = 0, width: int = 200) -> Result:
    """Calls a command, which has to end with this code; an error of Sightline is raised."""
    result = CliRunner().invoke(app, [*map(str, words)], env={"COLUMNS": str(width)}, catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result
