"""The registry: three ways in, one name each, and other people's mistakes stay their own."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from sightline.core.registry import Registry
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


def offer(monkeypatch: pytest.MonkeyPatch, *offered: tuple[str, str, str]) -> Registry[Any]:
    """A registry to which installed packages offer entry points: (name, value, package)."""
    points = [EntryPoint(name, value, "sightline.things") for name, value, _ in offered]
    for point, (*_, package) in zip(points, offered, strict=True):
        vars(point).update(dist=SimpleNamespace(name=package))
    monkeypatch.setattr("sightline.core.registry.entry_points", lambda group: points)
    return Registry("thing", group="sightline.things")


def test_packages_that_are_broken_or_take_a_name_hinder_nobody_and_are_named(
    monkeypatch: pytest.MonkeyPatch, refused: Refused, capsys: pytest.CaptureFixture[str]
) -> None:
    things = offer(
        monkeypatch,
        ("good", "pathlib:PurePath", "good-package"),
        ("missing", "no_such_module_anywhere:Thing", "missing-package"),
        ("own", "pathlib:PosixPath", "shadowing-package"),
        ("good", "pathlib:WindowsPath", "late-package"),
        ("fine", "pathlib:Path", "fine-package"),
    )
    things.add("own", list)
    assert things.get("own") is list
    assert things.get("own") is list
    assert capsys.readouterr().err == (
        "note: thing 'own' is Sightline's own; that of package shadowing-package is not used: "
        "rename it in shadowing-package\n"
    ), "said once"
    assert things.get("fine") is Path
    assert "missing" in things
    assert ("fine", Path) in list(things.items())
    assert "missing" not in dict(things.items())
    for _ in range(2):
        line = refused("repair or uninstall missing-package", things.get, "missing")
    assert things.broken()["missing"] == line
    refused("'good' is offered by good-package and by package late-package", things.get, "good")
    assert set(things.broken()) == {"missing", "good"}


def test_a_class_may_be_an_entry_point_and_decorated_too(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = offer(monkeypatch, ("path", "pathlib:Path", "a-package"))
    assert registry.names() == ["path"]
    monkeypatch.setattr(Path, "__module__", "pathlib")
    registry.register("path")(Path)
    assert registry.get("path") is Path
    late: Registry[Any] = Registry("thing", group="sightline.things")
    late.register("path")(Path)
    assert late.get("path") is Path


@pytest.mark.parametrize(
    ("error", "words"),
    [(SystemExit(0), "SystemExit: 0"), (RuntimeError("first line\nsecond line"), "RuntimeError: first line")],
    ids=["leaves", "raises"],
)
def test_whatever_an_import_does_is_one_line(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, words: str, refused: Refused
) -> None:
    module = ModuleType("failing_plug_in")

    def fail(name: str) -> None:
        raise error

    module.__getattr__ = fail  # type: ignore[method-assign]
    monkeypatch.setitem(sys.modules, "failing_plug_in", module)
    registry: Registry[object] = Registry("thing")
    registry.add("failing", "failing_plug_in:Thing")
    refused(f"thing 'failing' cannot be loaded ({words})", registry.get, "failing")
