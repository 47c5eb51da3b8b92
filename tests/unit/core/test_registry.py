"""The registry: three ways in, one name each, and other people's mistakes stay their own."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sightline.core.registry import Registry
from sightline.errors import SightlineError
from tests.refusals import Refused


def test_registry_takes_objects_and_lazy_names_once_and_of_its_base_alone(refused: Refused) -> None:
    registry: Registry[object] = Registry("thing")
    registry.add("path", "pathlib:Path")
    assert registry.get("path") is Path
    registry.register("list")(list)
    assert registry.names() == ["list", "path"]
    refused("registered twice", registry.add, "list", dict)
    refused("did you mean 'path'", registry.get, "pth")
    refused("known: list, path", registry.get, "zzzzzz")
    paths: Registry[Any] = Registry("path", base=(Path,))
    paths.add("path", "pathlib:Path")
    assert paths.get("path") is Path
    refused("int is no path: derive it from Path", paths.register("one"), int)
    paths.add("pure", "pathlib:PurePath")
    refused("PurePath is no path: derive it from Path", paths.get, "pure")


def offered(name: str, value: str, package: str) -> EntryPoint:
    """An entry point as an installed package has it."""
    point = EntryPoint(name, value, "sightline.things")
    vars(point).update(dist=SimpleNamespace(name=package))
    return point


@pytest.fixture
def things(monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    """One thing of our own, and a package each for a good one, a broken one and two that take other people's names."""
    monkeypatch.setattr(
        "sightline.core.registry.entry_points",
        lambda group: [
            offered("good", "pathlib:PurePath", "good-package"),
            offered("missing", "no_such_module_anywhere:Thing", "missing-package"),
            offered("own", "pathlib:PosixPath", "shadowing-package"),
            offered("good", "pathlib:WindowsPath", "late-package"),
            offered("fine", "pathlib:Path", "fine-package"),
        ],
    )
    registry: Registry[Any] = Registry("thing", group="sightline.things")
    registry.add("own", list)
    return registry


def test_a_package_that_cannot_be_imported_hinders_nobody_and_two_of_one_name_are_refused(
    things: Registry[Any], refused: Refused
) -> None:
    assert things.get("fine") is Path
    assert "missing" in things
    assert ("fine", Path) in list(things.items())
    assert "missing" not in dict(things.items())
    for _ in range(2):
        line = refused("repair or uninstall missing-package", things.get, "missing")
    assert things.broken()["missing"] == line
    refused("'good' is offered by good-package and by package late-package", things.get, "good")
    assert set(things.broken()) == {"missing", "good"}


def test_a_package_cannot_take_the_place_of_something_built_in(
    things: Registry[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert things.get("own") is list
    assert things.get("own") is list
    assert capsys.readouterr().err == (
        "note: thing 'own' is Sightline's own; that of package shadowing-package is not used: "
        "rename it in shadowing-package\n"
    ), "said once"


@pytest.mark.parametrize(
    ("error", "words"),
    [(SystemExit(0), "SystemExit: 0"), (RuntimeError("first line\nsecond line"), "RuntimeError: first line")],
    ids=["leaves", "raises"],
)
def test_whatever_an_import_does_is_one_line(monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str) -> None:
    module = ModuleType("failing_plug_in")

    def fail(name: str) -> None:
        raise error

    module.__getattr__ = fail  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "failing_plug_in", module)
    registry: Registry[object] = Registry("thing")
    registry.add("failing", "failing_plug_in:Thing")
    with pytest.raises(SightlineError, match=rf"^thing 'failing' cannot be loaded \({words}\)$"):
        registry.get("failing")


def test_a_class_may_be_an_entry_point_and_decorated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    registry: Registry[Any] = Registry("thing", group="sightline.things")
    monkeypatch.setattr(
        "sightline.core.registry.entry_points", lambda group: [offered("path", "pathlib:Path", "a-package")]
    )
    assert registry.names() == ["path"]
    monkeypatch.setattr(Path, "__module__", "pathlib")
    registry.register("path")(Path)
    assert registry.get("path") is Path
    late: Registry[Any] = Registry("thing", group="sightline.things")
    late.register("path")(Path)
    assert late.get("path") is Path
