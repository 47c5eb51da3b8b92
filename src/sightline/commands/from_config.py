"""Options of ``sightline run`` made from ``AuditConfig``: one per field, with its type, description and default.

An option left out is None, so that the config file decides, and the field's own default where that says nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import typer
import yaml
from pydantic.fields import FieldInfo

from sightline.auditing.config import BY_URL, FORMER_IMAGE_FIELDS, AuditConfig, flag_of, panel_of
from sightline.errors import SightlineError
from sightline.places import Place, place

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
