"""The faults that the quick tests are tried with are still faults of this source."""

from benchmarks.mutants import read_mutants, read_sources

from tests.conftest import REPOSITORY, SLOW


def test_every_mutant_changes_one_place_of_the_package_and_names_quick_tests() -> None:
    mutants, sources = read_mutants(), read_sources()
    assert len({mutant.name for mutant in mutants}) == len(mutants) >= 40
    for mutant in mutants:
        place = mutant.place(sources)
        mutated = mutant.applied(sources[place])
        assert mutated != sources[place]
        compile(mutated, str(place), "exec")
        for test in mutant.tests:
            path = test.partition("::")[0]
            assert (REPOSITORY / path).exists(), f"{mutant.name}: there is no {path}"
            assert not path.startswith(tuple(f"tests/{slow}" for slow in SLOW)), f"{mutant.name}: {path} is slow"
