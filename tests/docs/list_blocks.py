"""``python -m tests.docs.list_blocks`` prints every block of the pages that tests execute, and what they leave out."""

from tests.docs.pages import Block, documented_pages
from tests.docs.stand_ins import executed_blocks, executed_commands, left_out, models_of

WIDTH = 110


def lines() -> list[str]:
    """One line per executed block, then one per command that is left out, then the counts."""
    found: list[str] = []
    blocks = commands = python = 0
    for page in documented_pages():
        for block in executed_blocks(page):
            blocks += 1
            commands += len(executed_commands(block))
            python += block.kind == "python"
            found.append(f"{block.place:<30} {block.kind:<8} {_told(block)}")
    found += ["", "not executed"]
    found += [f"{block.page}:{command.line:<5} {_short(command.text)}  ({why})" for block, command, why in left_out()]
    found += [
        "",
        f"{blocks} blocks executed: {commands} commands, {python} of Python; {len(left_out())} commands left out",
    ]
    return found


def _told(block: Block) -> str:
    """The first executed command, how many follow, and the models of a page that is about any."""
    if block.kind == "python":
        return _short(block.title)
    first, *others = executed_commands(block)
    more = f"  (+{len(others)})" if others else ""
    models = f"  [{', '.join(models_of(block.page))}]" if models_of(block.page) else ""
    return f"{_short(first.text)}{more}{models}"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


if __name__ == "__main__":
    print("\n".join(lines()))
