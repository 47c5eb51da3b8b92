"""Files at the root of the repository agree with one another and with the package and its public names."""

import re
import subprocess
import sys
import tomllib
import zlib
from glob import glob
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sightline
from tests.conftest import REPOSITORY
from tests.warm_python import run_python


def text(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


def make_targets() -> dict[str, str]:
    """Target -> its commands, for those that a person calls."""
    return dict(re.findall(r"^([\w-]+):.*\n((?:\t.*\n)*)", text("Makefile"), re.MULTILINE))


def forms(folder: str) -> dict[str, Any]:
    return {path.stem: yaml.safe_load(path.read_text()) for path in (REPOSITORY / ".github" / folder).glob("*.yml")}


def test_the_version_and_the_citation_agree_with_the_package() -> None:
    citation = yaml.safe_load(text("CITATION.cff"))
    assert (citation["version"], citation["license"]) == (sightline.__version__, "Apache-2.0")
    assert (citation["cff-version"], citation["title"]) == ("1.2.0", "Sightline")
    assert citation["authors"] == [{"name": "The Sightline authors"}]
    assert re.findall(r"^## \[([\d.]+)\]", text("CHANGELOG.md"), re.MULTILINE)[0] == sightline.__version__
    assert 'dynamic = ["version"]' in text("pyproject.toml")


def test_the_command_prints_the_version_without_loading_torch() -> None:
    script = "import sys; from sightline.cli import main\ntry: main()\nfinally: print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"sightline {sightline.__version__}", "False"]


def test_workflows_run_what_a_person_runs_on_the_pythons_that_the_package_names() -> None:
    flows = forms("workflows")
    steps = [step for flow in flows.values() for job in flow["jobs"].values() for step in job["steps"]]
    commands = [step["run"] for step in steps if "run" in step]
    assert commands == ["make test", "make test-slow", "make docs", "make demo"]
    assert {command.removeprefix("make ") for command in commands} <= set(make_targets())
    named = re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text("pyproject.toml"))
    assert flows["ci"]["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_hooks_check_what_make_lint_checks() -> None:
    settings = yaml.safe_load(text(".pre-commit-config.yaml"))
    hooks = {hook["id"]: hook for repository in settings["repos"] for hook in repository["hooks"]}
    local = {hook["name"] for hook in hooks.values() if "entry" in hook}
    checks = {f"\t$(BIN)/{name} .".removesuffix(" ." if name == "mypy" else "") for name in local}
    assert checks == set(make_targets()["lint"].splitlines())
    assert {"end-of-file-fixer", "check-added-large-files"} <= set(hooks)


def test_contributing_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w./]+)`", text("CONTRIBUTING.md"))
    assert len(named) > 10
    assert [path for path in named if not (REPOSITORY / path).exists()] == []


def test_templates_are_forms_that_a_forge_can_show() -> None:
    templates = forms("ISSUE_TEMPLATE")
    assert set(templates) == {"config", "bug", "new-selector", "new-backbone"}
    for name, form in templates.items():
        if name != "config":
            assert form["name"]
            assert form["description"]
            ids = [field["id"] for field in form["body"]]
            assert len(ids) == len(set(ids))
            assert all(field["attributes"]["label"] for field in form["body"])


def test_torch_is_installed_first_and_a_demo_installs_no_test_tools() -> None:
    recipes = text("Makefile")
    assert re.search(r"^demo: \$\(STAMP\)-demo$", recipes, re.MULTILINE)
    assert re.search(r"^\$\(STAMP\)-demo:.*\n\t\$\(PIP\) --editable \.\n", recipes, re.MULTILINE)
    says = make_targets()["demo"].split("@echo")[1]
    assert "$(BIN)/sightline" in says, "where the commands are that the demo names"
    for stamp in ("demo", "docs", "test"):
        assert re.search(rf"^\$\(STAMP\)-{stamp}:.*\$\(STAMP\)-torch$", recipes, re.MULTILINE)


def test_everything_that_the_test_extra_installs_is_pinned() -> None:
    lines = [line.partition("==") for line in text("constraints.txt").split()]
    assert all(equals for _, equals, _ in lines), "a constraint is an exact version"
    known = {canonicalize_name(name) for name, _, _ in lines}
    waiting = [Requirement("sightline[test]")]
    seen: set[tuple[str, str]] = set()
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        assert name == "sightline" or name in known, f"{name} is not in constraints.txt"
        for extra in {"", *wanted.extras} - {extra for installed, extra in seen if installed == name}:
            seen.add((name, extra))
            needs = map(Requirement, requires(name) or ())
            waiting += [each for each in needs if each.marker is None or each.marker.evaluate({"extra": extra})]
    assert {"mkdocs", "pytest", "torch", "rapidocr"} <= {name for name, _ in seen}


def packaged() -> dict[str, Path]:
    """Name in the wheel -> file, for everything that it holds by the rules of pyproject.toml."""
    rules = tomllib.loads(text("pyproject.toml"))["tool"]["setuptools"]
    data, left_out = rules["package-data"], rules["exclude-package-data"]
    packages = [path for root in rules["packages"]["find"]["where"] for path in (REPOSITORY / root).glob("sightline*/")]

    def matching(package: Path, patterns: list[str]) -> set[str]:
        return {name for pattern in patterns for name in glob(pattern, root_dir=package, recursive=True)}

    return {
        f"{package.name}/{name}": package / name
        for package in packages
        for name in matching(package, ["**/*.py", *data["*"], *data.get(package.name, [])])
        - matching(package, left_out.get(package.name, []))
        if (package / name).is_file()
    }


def test_the_wheel_has_what_demonstrations_need_and_stays_small() -> None:
    files = packaged()
    shipped = {"cli.py", "py.typed", "assets/reader/model.safetensors", "assets/stand-ins.tar.xz"}
    shipped |= {f"assets/scenes/confirmation/{name}probes.jsonl" for name in ("", "open_")}
    beside = {"annotate/kinds.toml", "annotate/pages/annotate.html", "leaderboard/words.toml", "paper/data.toml"}
    beside |= {"paper/development_ids.txt", "paper/study_page.html", "paper/tables/table_1.yaml"}
    assert {f"sightline/{name}" for name in shipped} | {f"sightline_{name}" for name in beside} <= set(files)
    stay = r"sightline/(assets/(reader-llava|scenes/development)|reader|lab)/"
    assert [name for name in files if re.match(stay, name)] == []
    assert sum(len(zlib.compress(file.read_bytes(), level=1)) for file in files.values()) < 34e6


def test_names_are_listed_and_stay_themselves_when_their_home_has_been_imported() -> None:
    code = (
        "import sightline\n"
        "first = {name: getattr(sightline, name) for name in sightline.__all__}\n"
        "assert all(getattr(sightline, name) is value for name, value in first.items())\n"
        "assert callable(sightline.audit)\n"
    )
    run_python(["-c", code]).check_returncode()
    assert {"audit", "load_run", "SELECTORS", "Selector", "AuditConfig"} <= set(dir(sightline))
    assert sorted(sightline.__all__) == sorted(set(dir(sightline)) - {"__version__"})
