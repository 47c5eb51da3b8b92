"""``python -m tests.docs.list_blocks`` prints every block of the pages that tests execute, and what they leave out."""

from tests.docs.pages import documented_pages
from tests.docs.stand_ins import executed_blocks, executed_commands, left_out, models_of

WIDTH = 110


def lines() -> list[str]:
    """One line per executed block with its first command, then one per command that is left out, then the counts."""
    found: list[str] = []
    blocks = [block for page in documented_pages() for block in executed_blocks(page)]
    for block in blocks:
        told = _short(block.title)
        if block.kind != "python":
            first, *others = executed_commands(block)
            more = f"  (+{len(others)})" if others else ""
            models = f"  [{', '.join(models_of(block.page))}]" if models_of(block.page) else ""
            told = f"{_short(first.text)}{more}{models}"
        found.append(f"{block.place:<30} {block.kind:<8} {told}")
    found += ["", "not executed"]
    found += [f"{block.page}:{command.line:<5} {_short(command.text)}  ({why})" for block, command, why in left_out()]
    commands, python = sum(len(executed_commands(each)) for each in blocks), sum(b.kind == "python" for b in blocks)
    counted = f"{commands} commands, {python} of Python; {len(left_out())} commands left out"
    return [*found, "", f"{len(blocks)} blocks executed: {counted}"]


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 3]}..."


if __name__ == "__main__":
    print("\n".join(lines()))
