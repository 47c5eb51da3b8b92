"""Options that several commands share: typer sees the fields of a model, the command gets the object."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
import typer
from pydantic import BaseModel, Field
from typer.testing import CliRunner

from sightline.commands.options import with_options
from sightline.core.flags import Flag


class Size(BaseModel):
    width: Annotated[int, Flag(name="--wide")] = Field(description="In pixels.")
    height: int | None = Field(None, description="In pixels.")


app = typer.Typer()
seen: list[tuple[Any, ...]] = []


@app.command()
@with_options
def draw(name: Annotated[str, typer.Argument()], size: Size, bold: bool = False) -> None:
    """Draws a name."""
    seen.append((name, size, bold))


@pytest.fixture(autouse=True)
def _nothing_seen_yet() -> None:
    seen.clear()


def test_a_command_gets_the_object_with_its_other_parameters() -> None:
    assert CliRunner().invoke(app, ["a", "--wide", "3", "--bold"]).exit_code == 0
    assert CliRunner().invoke(app, ["b", "--height", "4", "--wide", "3"]).exit_code == 0
    assert seen == [("a", Size(width=3), True), ("b", Size(width=3, height=4), False)]


def test_a_field_without_default_is_required_and_types_are_checked() -> None:
    for arguments in (["a"], ["a", "--wide", "x"], ["a", "--size", "3"]):
        assert CliRunner().invoke(app, arguments).exit_code == 2
    assert seen == []


def test_help_and_name_are_those_of_the_command() -> None:
    text = CliRunner().invoke(app, ["--help"]).output
    assert "Draws a name." in text
    assert "--wide" in text
    assert "--size" not in text
    assert draw.__name__ == "draw"
