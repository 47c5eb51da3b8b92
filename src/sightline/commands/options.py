"""Options of commands: flags from a configuration, groups that several share, paths and URLs, help in panels."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
import yaml
from pydantic.fields import FieldInfo
from typer.core import TyperGroup

from sightline.auditing.config import BY_URL, FORMER_IMAGE_FIELDS, AuditConfig, flag_of, panel_of
from sightline.errors import SightlineError
from sightline.places import Place, place
from sightline.places.writing import STANDARD_OUTPUT, output_set_aside, refuse_other_ending, refuse_unusable_file

# Options of ``sightline run`` made from ``AuditConfig``: one per field, with its type, description and default.
#
# An option left out is None, so that the config file decides, and the field's own default where that says nothing.

Command = TypeVar("Command", bound=Callable[..., None])

PAIR = "NAME=VALUE"
ImageOption = Annotated[
    list[str] | None,
    typer.Option(
        flag_of("image_options"),
        metavar=PAIR,
        help=f"{AuditConfig.model_fields['image_options'].description} Repeatable.",
    ),
]
"""For commands that open a checkpoint without a config."""


def takes_config(command: Command) -> Command:
    """Replaces a command's ``**given`` by one option per field, and hidden ones for those of the first release."""
    signature = inspect.signature(command, eval_str=True)
    own = [parameter for parameter in signature.parameters.values() if parameter.kind is not parameter.VAR_KEYWORD]
    fields = [_parameter(name, *_option(name, field)) for name, field in AuditConfig.model_fields.items()]
    former = [_parameter(name, int, typer.Option(hidden=True)) for name in FORMER_IMAGE_FIELDS]
    parameters = [*own, *fields, *former]
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def overrides(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the options gave, by field, for ``read_config``."""
    values = {name: given[name] for name in AuditConfig.model_fields}
    for name, field in AuditConfig.model_fields.items():
        if get_origin(field.annotation) is dict:
            values[name] = pairs(values[name], flag_of(name))
    values["image_options"] = {**former_flags(given), **values["image_options"]}
    return values


def former_flags(given: Mapping[str, Any]) -> dict[str, Any]:
    """The first release's flags among those given, as image options, each with a hint how it is written now."""
    former = {name: given[name] for name in FORMER_IMAGE_FIELDS if given.get(name) is not None}
    for name, value in former.items():
        flag = f"--{name.replace('_', '-')} {value}"
        typer.echo(f"hint: {flag} is now written {flag_of('image_options')} {name}={value}", err=True)
    return former


def pairs(given: list[str] | None, flag: str) -> dict[str, Any]:
    """``NAME=VALUE``, repeated. Values are read as in the config file: a number, true, null, or text."""
    values: dict[str, Any] = {}
    for pair in given or []:
        name, equals, text = (part.strip() for part in pair.partition("="))
        if not (name and equals):
            raise SightlineError(f"{flag} {pair}: write {flag} {PAIR}")
        try:
            values[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            values[name] = text
    return values


def _parameter(name: str, kind: Any, option: Any) -> inspect.Parameter:
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, option]
    )


def _option(name: str, field: FieldInfo) -> tuple[Any, Any]:
    """The type of a field's option, and the option itself."""
    flag, metavar, parser = flag_of(name), None, None
    kind: Any = _without_none(field.annotation)
    repeated = get_origin(kind) in (list, dict)
    if BY_URL in field.metadata:
        kind, metavar, parser = Place, "PATH_OR_URL", place
    elif get_origin(kind) is list:
        metavar = flag.removeprefix("--").upper()
    elif get_origin(kind) is dict:
        kind, metavar = list[str], PAIR
    elif kind is bool:
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    elif kind not in (str, int, float, Path) and get_origin(kind) is not Literal:
        kind = str  # the config reads whatever else it may be
    words = [field.description or ""]
    words += ["Repeatable."] if repeated else []
    words += ["Required."] if field.is_required() else []
    return kind, typer.Option(
        flag,
        help=" ".join(filter(None, words)),
        metavar=metavar,
        parser=parser,
        show_default=default_of(flag, field) or False,
        rich_help_panel=panel_of(name),
    )


def _without_none(annotation: Any) -> Any:
    """``int`` of ``int | None``."""
    if get_origin(annotation) not in (Union, UnionType):
        return annotation
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    return kinds[0] if len(kinds) == 1 else annotation


def default_of(flag: str, field: FieldInfo) -> str:
    """In words; nothing for a field that is required or empty by default."""
    if field.is_required() or isinstance(field.default_factory, type):
        return ""
    if field.default_factory is not None:
        return str(field.default_factory)
    if isinstance(field.default, bool):
        yes, _, no = flag.partition("/")
        return (yes if field.default else no).removeprefix("--")
    return "" if field.default is None else str(field.default)


# Options that several commands share, as one dataclass: typer sees its fields, the command gets the object.


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces every parameter whose type is a dataclass by the fields of that class, as parameters of their own."""
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            parameters += _parameters(parameter.annotation)
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def _parameters(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


# Arguments and options that name a place: a path, or a URL of an object store.


def place_argument(metavar: str, help: str) -> Any:
    """An argument that is read as text: ``Path`` would take a slash from every URL."""
    return typer.Argument(metavar=metavar, help=help, parser=place)


def place_option(help: str, **more: Any) -> Any:
    """Likewise an option."""
    return typer.Option(metavar="PATH_OR_URL", help=help, parser=place, **more)


def file_option(help: str, *names: str, endings: tuple[str, ...] = (), **more: Any) -> Any:
    """An option that names one file to write, a pipe or device to write through, or ``-``, standard output.

    What cannot be written to is refused before any work, and so is a name that ends like another format than
    ``endings``. With ``-`` everything else that the command says goes to standard error.
    """

    def checked(ctx: typer.Context, value: Path | None) -> Path | None:
        if value is None or ctx.resilient_parsing:
            return value
        if endings:
            refuse_other_ending(value, *endings)
        refuse_unusable_file(value)
        if str(value) == STANDARD_OUTPUT:
            ctx.with_resource(output_set_aside())
        return value

    return typer.Option(*names, help=f"{help} - is standard output.", callback=checked, **more)


RunArgument = Annotated[Place, place_argument("RUN", "Run folder: a path or a URL.")]


# How commands take a run that lies in several folders.

AsOneOption = Annotated[
    bool, typer.Option("--as-one", help="The folders are parts of one run: sightline run --part, or arms divided.")
]


def as_one_run(folders: Sequence[Place], *, as_one: bool) -> Place | tuple[Place, ...]:
    """The one run that a command takes: a folder, or several that are one."""
    if len(folders) == 1:
        return folders[0]
    if as_one:
        return tuple(folders)
    raise SightlineError(f"{len(folders)} run folders given where one is taken; --as-one joins parts of one run")


def runs_or_one(folders: Sequence[Place], *, as_one: bool) -> list[Place | tuple[Place, ...]]:
    """The runs that a command takes: each folder one, or all together one."""
    return [tuple(folders)] if as_one and len(folders) > 1 else list(folders)


# What all pages of help have in common, done once for every command instead of by each.


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
