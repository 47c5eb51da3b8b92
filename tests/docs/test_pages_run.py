"""Every block of README, CONTRIBUTING and docs is executed as it stands there; pages about any model on all three."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.docs.page_runner import Outcome, execute
from tests.docs.pages import documented_pages
from tests.docs.stand_ins import executed_blocks, models_of

Outcomes = Callable[[str, str | None], dict[str, Outcome]]


def cases() -> list[object]:
    """One case per block and model; those of a page stay in one worker, which executes the page once."""
    return [
        pytest.param(
            page,
            block.place,
            model,
            id=f"{block.place}{f'-{model}' if model else ''}",
            marks=pytest.mark.xdist_group(f"{page}-{model}"),
        )
        for page in documented_pages()
        for model in models_of(page) or (None,)
        for block in executed_blocks(page)
    ]


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    @cache
    def of(page: str, model: str | None) -> dict[str, Outcome]:
        folder = tmp_path_factory.mktemp(Path(page).stem) / "page"
        return {outcome.place: outcome for outcome in execute(page, folder, model)}

    return of


@pytest.mark.parametrize(("page", "place", "model"), cases())
def test_a_block_runs_as_it_stands_on_its_page(page: str, place: str, model: str | None, outcomes: Outcomes) -> None:
    outcome = outcomes(page, model)[place]
    assert not outcome.failed, outcome.failed
