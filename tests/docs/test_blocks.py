"""The blocks of a page are found, nothing is left out in silence, and a block that is wrong is noticed."""

import re
from pathlib import Path

import yaml

from tests.docs import list_blocks, stand_ins
from tests.docs.page_runner import execute
from tests.docs.pages import REPOSITORY, blocks_in, blocks_of, documented_pages

TRIAL = yaml.safe_load((REPOSITORY / "tests/docs/trial_pages.yaml").read_text(encoding="utf-8"))


def test_commands_python_and_files_are_told_apart() -> None:
    found = blocks_in("page.md", TRIAL["page"])
    assert [(block.line, block.kind) for block in found] == [
        (3, "commands"), (7, "text"), (14, "commands"), (21, "python"), (24, "text"), (29, "file"),
    ]  # fmt: skip
    assert found[0].commands[0].text == "sightline probes formats"
    assert found[2].commands[0].text.split() == ["sightline", "run", "--arm", "full", "--out", "run"]
    assert [command.shown for command in found[2].commands] == ["done         4 rows\n", ""]
    assert [command.line for command in found[2].commands] == [14, 17]
    assert found[3].prints == "1\n"
    assert (found[5].name, found[5].text) == ("a/b.csv", "image,text\n")


def test_no_command_in_a_page_escapes() -> None:
    """Whatever looks like a command within a block is one that is executed, or is left out by name."""
    for page in documented_pages():
        known = {command.line for block in blocks_of(page) for command in block.commands}
        text = (REPOSITORY / page).read_text(encoding="utf-8").splitlines()
        inside = False
        for number, line in enumerate(text, 1):
            inside ^= line.lstrip().startswith("```")
            if (inside or line.startswith("    ")) and re.match(r"\s*(\$ )?(sightline|pip|make) \w", line):
                assert number in known, f"{page}:{number} {line}"


def test_pages_of_ours_are_executed_with_the_models_they_speak_of_and_limits_of_their_own() -> None:
    executed = {page for page in documented_pages() if stand_ins.executed_blocks(page)}
    assert {"README.md", "docs/paper.md", "docs/cost.md", "docs/write-a-selector.md", "docs/reader.md"} <= executed
    assert {"docs/add-a-backbone.md", *stand_ins.PREPARED} <= executed
    blocks = [block for page in executed for block in stand_ins.executed_blocks(page)]
    assert sum(len(stand_ins.executed_commands(block)) for block in blocks) >= 60
    lines = list_blocks.lines()
    listed = [block.place for page in documented_pages() for block in stand_ins.executed_blocks(page)]
    assert [line.split()[0] for line in lines[: len(listed)]] == listed
    assert lines[-1].startswith(f"{len(listed)} blocks executed: ")
    assert stand_ins.models_of("docs/write-a-selector.md") == ("qwen3vl", "llava", "internvl")
    assert stand_ins.models_of("README.md") == ()
    limited = {"demo": "demo --limit 4", "demo --limit 20": "demo --limit 20", "rows run": "rows run"}
    for words, executed_words in limited.items():
        assert stand_ins.as_executed(f"sightline {words}") == f"sightline {executed_words}"
    assert stand_ins.reason_not_executed("README.md", "pip install .")
    assert stand_ins.reason_not_executed("docs/runs.md", "pip install .") is None


def test_what_is_left_out_replaced_or_prepared_still_stands_on_a_page() -> None:
    commands = {
        page: [each.text for block in blocks_of(page) for each in block.commands] for page in documented_pages()
    }
    for (page, begins), why in stand_ins.NOT_EXECUTED.items():
        assert any(command.startswith(begins) for command in commands[page]), (page, begins)
        assert why
    for pattern, _ in (*stand_ins.SUBSTITUTIONS, *stand_ins.LIMITS, *stand_ins.EXIT_CODES):
        assert any(re.search(pattern, command) for each in commands.values() for command in each), pattern
    for page, prepared in stand_ins.PREPARED.items():
        assert set(prepared.between) <= set(commands[page]), page
    pages = "".join((REPOSITORY / page).read_text(encoding="utf-8") for page in documented_pages())
    pages += " ".join(command for page in stand_ins.PREPARED.values() for command in page.commands)
    for name in stand_ins.LAID_OUT:
        assert re.search(rf"(?<![\w/]){re.escape(name)}(?!\w)", pages), f"no page speaks of {name}"
    for source in {*stand_ins.LAID_OUT.values(), *stand_ins.OURS.values()}:
        assert (REPOSITORY / source).exists(), source
    targets = set(re.findall(r"^([\w-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert {begins.split()[1] for _, begins in stand_ins.NOT_EXECUTED if begins.startswith("make ")} <= targets


def test_whatever_is_wrong_on_a_page_is_noticed_and_the_rest_still_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    right = "```console\n$ sightline --version\n```\n"
    page.write_text("\n".join([*(wrong["page"] for wrong in TRIAL["wrong"].values()), right]), encoding="utf-8")
    found = execute(str(page), tmp_path / "run")
    said = [outcome.failed for outcome in found if outcome.failed]
    for failed, (what, wrong) in zip(said, TRIAL["wrong"].items(), strict=True):
        assert wrong["said"] in failed, what
    assert not found[-1].failed
