"""What all pages of help have in common, done once for every command instead of by each."""

from __future__ import annotations

from typing import Any

from typer.core import TyperGroup


class Commands(TyperGroup):
    """A group of commands whose pages show a type only where a value is to be written."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        command = super().get_command(ctx, cmd_name)
        if command is not None and ctx is not None:  # without a context nobody reads a page
            _show_values_only(command, ctx)
        return command

    def get_params(self, ctx: Any) -> list[Any]:
        return [_with_value_name(parameter) for parameter in super().get_params(ctx)]


def _show_values_only(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        _with_value_name(parameter)
    for child in getattr(command, "commands", {}).values():
        _show_values_only(child, ctx)


def _with_value_name(parameter: Any) -> Any:
    """Nothing behind a flag, which takes no value; RULE behind ``--rule``, of which there may be several."""
    if parameter.param_type_name == "option" and parameter.metavar is None:
        if parameter.is_flag:
            parameter.metavar = ""
        elif parameter.multiple:
            parameter.metavar = max(parameter.opts, key=len).lstrip("-").upper()
    return parameter
