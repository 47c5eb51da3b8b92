"""Options of commands: flags from the fields of models, paths and URLs, runs in several folders, help in panels."""

from __future__ import annotations

import functools
import inspect
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, cast, get_args, get_origin

import typer
from pydantic import BaseModel, Field
from pydantic.fields import FieldInfo
from typer.core import TyperGroup
from typer.models import ParameterInfo

from sightline.core.flags import (
    SPEED,
    TAKES_URL,
    Flag,
    describe,
    flag_of,
    flag_of_field,
    least_of,
    mark_of,
    most_of,
    options_of,
)
from sightline.errors import SightlineError
from sightline.places.listing import Place, place
from sightline.places.writing import STANDARD_OUTPUT, output_set_aside, refuse_other_ending, refuse_unusable_file

# Flags: one per described field of a model or parameter of a command, with its type, description, default and bounds.

PAIR = "NAME=VALUE"
Model = TypeVar("Model", bound=type[BaseModel])
Command = TypeVar("Command", bound=Callable[..., None])


def in_words(model: Model) -> Model:
    """Above a model of options: ``words.toml`` beside it has the descriptions of its fields."""
    describe(model, _words_of(model))
    return model


def _words_of(declared: Any) -> dict[str, str]:
    """The sentences of ``words.toml`` beside the module that declares a model or command."""
    file = Path(str(sys.modules[declared.__module__].__file__))
    return _sentences(file.with_name("words.toml")).get(file.stem, {}).get(declared.__name__, {})


@functools.cache
def _sentences(file: Path) -> dict[str, dict[str, dict[str, str]]]:
    return tomllib.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


@dataclass(frozen=True)
class Overrides:
    """Marks a parameter that takes what flags gave for the fields of a model, by name; a file has the rest.

    A flag left out is absent, so that the file decides, and the field's own default where that says nothing.
    """

    model: type[BaseModel]
    panel: str
    """Of fields that name none."""


def with_options(command: Command) -> Command:
    """Above a command: every parameter becomes a flag, as a field of a model would; one that is a model, several.

    A parameter whose type is a model, or marked by ``Overrides``, is replaced by flags for the model's fields. One
    marked by ``typer.Argument`` stays what it is. Sentences that nothing else says are in ``words.toml``.
    """
    words = _words_of(command)
    made: dict[str, tuple[list[str], Callable[[dict[str, Any]], Any]]] = {}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        given = parameter.annotation
        marks = getattr(given, "__metadata__", ())
        over = next((mark for mark in marks if isinstance(mark, Overrides)), None)
        model = over.model if over is not None else given
        if hasattr(model, "model_fields"):
            fields = list(flag_parameters(model, panel=over.panel if over else None, over_file=over is not None))
            made[name] = ([field.name for field in fields], functools.partial(_overrides if over else _made, model))
            parameters += fields
        elif argument := next((mark for mark in marks if isinstance(mark, ParameterInfo)), None):
            argument.help = words.get(name, argument.help)
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=given))
        else:
            parameters.append(flag_parameter(name, given, parameter.default, words.get(name)))
    if not made:
        return with_parameters(command, parameters)

    @functools.wraps(command)
    def flat(**values: Any) -> None:
        for name, (fields, make) in made.items():
            values[name] = make({field: values.pop(field) for field in fields})
        command(**values)

    return cast(Command, with_parameters(flat, parameters))


def with_parameters(command: Command, parameters: list[inspect.Parameter]) -> Command:
    """The command as typer shall read it."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command


def _made(model: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    return model(**values)


def _overrides(model: type[BaseModel], values: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, by field."""
    return {
        name: pairs(value, flag_of(model, name)) if get_origin(model.model_fields[name].annotation) is dict else value
        for name, value in values.items()
        if value is not None
    }


def flag_parameters(
    model: type[BaseModel], names: Sequence[str] | None = None, *, panel: str | None = None, over_file: bool = False
) -> Iterator[inspect.Parameter]:
    """A parameter per option of the model, or per name.

    ``over_file``: defaults and bounds are left to whoever reads the file.
    """
    for name in options_of(model) if names is None else names:
        yield _flag_parameter(name, model.model_fields[name], panel, over_file)


def flag_parameter(name: str, annotation: Any, default: Any, sentence: str | None = None) -> inspect.Parameter:
    """A parameter that no model declares: its type, with the marks of a field, its default, and what it means."""
    required = default is inspect.Parameter.empty
    field = (
        FieldInfo.from_annotation(annotation) if required else FieldInfo.from_annotated_attribute(annotation, default)
    )
    field.description = sentence or field.description
    return _flag_parameter(name, field, None, over_file=False)


def _flag_parameter(name: str, field: FieldInfo, panel: str | None, over_file: bool) -> inspect.Parameter:
    """A list or mapping is a flag that may be repeated; a mapping's takes ``NAME=VALUE``."""
    flag, mark = flag_of_field(name, field), mark_of(field)
    kind: Any = _without_none(field.annotation)
    repeated = get_origin(kind) in (list, dict)
    written = next((each for each in field.metadata if isinstance(each, Written)), None)
    words = [field.description, *(["Repeatable."] if repeated else []), *([Written.ALSO] if written else [])]
    how: dict[str, Any] = {"metavar": mark.metavar or None, "rich_help_panel": mark.panel or panel}
    if written is not None:
        how["callback"] = written.check
    if TAKES_URL in field.metadata:
        kind, how["parser"] = list[Place] if repeated else Place, place
        how["metavar"] = mark.metavar or "PATH_OR_URL"
    elif repeated:
        how["metavar"] = mark.metavar or (PAIR if get_origin(kind) is dict else flag.removeprefix("--").upper())
        kind = kind if get_origin(kind) is list else list[str]
    elif kind is bool and "/" not in flag and (over_file or field.default or field.default is None):
        flag = f"{flag}/--no-{flag.removeprefix('--')}"
    elif mark.read is not None or (kind not in (str, bool, int, float, Path) and get_origin(kind) is not Literal):
        kind = str  # whoever reads it makes of the text whatever else it may be
    if over_file:
        default: Any = None
        how["show_default"] = default_of(flag, field) or False
        words += ["Required."] if field.is_required() else []
    else:
        default = mark.usual if mark.read is not None else field.get_default(call_default_factory=True)
        default = inspect.Parameter.empty if field.is_required() else default
        how["show_default"] = mark.shown or True
        how |= {"min": least_of(field), "max": most_of(field)} if mark.read is None else {}
    taken: Any = kind | None if over_file or default is None else kind
    annotation = Annotated[taken, typer.Option(flag, help=" ".join(filter(None, words)), **how)]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def pairs(given: list[str] | None, flag: str) -> dict[str, Any]:
    """``NAME=VALUE``, repeated. Values are read as in the config file: a number, true, null, or text."""
    import yaml

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


# Arguments and options that name a place: a path, or a URL of an object store.


def place_argument(metavar: str, help: str | None = None) -> Any:
    """An argument that is read as text: ``Path`` would take a slash from every URL."""
    return typer.Argument(metavar=metavar, help=help, parser=place)


@dataclass(frozen=True)
class Written:
    """Beside the type of an option: it names one file to write, a pipe or device to write through, or ``-``.

    What cannot be written to is refused before any work, and so is a name that ends like another format than
    ``ending``. With ``-``, standard output, everything else that the command says goes to standard error.
    """

    ALSO: ClassVar[str] = "- is standard output."
    ending: str = ""

    def check(self, ctx: typer.Context, value: Path | None) -> Path | None:
        if value is None or ctx.resilient_parsing:
            return value
        if self.ending:
            refuse_other_ending(value, self.ending)
        refuse_unusable_file(value)
        if str(value) == STANDARD_OUTPUT:
            ctx.with_resource(output_set_aside())
        return value


DeviceOption = Annotated[str, Flag(SPEED), Field(description="auto, cpu, cuda, cuda:1.")]
RunArgument = Annotated[Place, place_argument("RUN", "Run folder: a path or a URL.")]


# How commands take a run that lies in several folders.

AsOneOption = Annotated[
    bool, Field(description="The folders are parts of one run: sightline run --part, or arms divided.")
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


def _in_one_word(command: Any, write: Callable[..., None], ctx: Any, formatter: Any) -> None:
    """Writes a page on which a flag and its contrary are one word, ``--[no-]twins``: two columns leave no room."""
    both = [
        (option, option.opts, option.secondary_opts)
        for option in command.params
        if option.secondary_opts == [f"--no-{option.opts[0][2:]}"]
    ]
    try:
        for option, (name, *others), _ in both:
            option.opts, option.secondary_opts = [f"--[no-]{name[2:]}", *others], []
        write(ctx, formatter)
    finally:
        for option, names, contrary in both:
            option.opts, option.secondary_opts = names, contrary


def _show_values_only(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        _with_value_name(parameter)
    if not isinstance(command.format_help, functools.partial):
        command.format_help = functools.partial(_in_one_word, command, command.format_help)
    for child in getattr(command, "commands", {}).values():
        _show_values_only(child, ctx)


def _with_value_name(parameter: Any) -> Any:
    """RULE behind ``--rule``, of which there may be several; nothing behind a flag that takes no value, or an argument.

    An argument's own name and sentence say what it is, better than ``<list[object]>``.
    """
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: None
    elif parameter.metavar is None and parameter.is_flag:
        parameter.metavar = ""
    elif parameter.metavar is None and parameter.multiple:
        parameter.metavar = max(parameter.opts, key=len).lstrip("-").upper()
    return parameter


def named_models(given: list[str]) -> dict[str, str]:
    """Checkpoints by the name before an equals sign, else by their last part; two of one name are refused."""
    found: dict[str, str] = {}
    for text in given:
        name, equals, source = text.partition("=")
        if not equals:
            name, source = Path(text).name, text
        if not name or "/" in name or name in found:
            raise SightlineError(f"--model {text}: name it apart from the others, for example --model second={source}")
        found[name] = source
    return found
