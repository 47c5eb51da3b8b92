"""``sightline policy``: budgets of each sample's own, chosen on one half of a run and judged on the other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel, Field

from sightline.commands.options import Written, in_words, place_argument, with_options
from sightline.core.flags import Flag
from sightline.places.listing import Place
from sightline.progress import say

if TYPE_CHECKING:
    from sightline.analysis.policy_verdict import PolicyFigures, PolicyVerdict, TunedPolicy
    from sightline.rows.run import Run

app = typer.Typer(help="Choose and judge policies: budgets that differ from sample to sample.", no_args_is_help=True)


@in_words
class VerdictOptions(BaseModel):
    """What a verdict is reached by."""

    reference: str | None = None
    tolerance: float = Field(0.01, ge=0.0)
    most_keep: float = Field(0.6, ge=0.0)
    cost_below: float = Field(0.7, ge=0.0)
    least_n: int = Field(50, ge=1)
    draws: int = Field(10_000, ge=100)
    seed: int = 17

    def arguments(self) -> dict[str, Any]:
        """For ``tune`` and ``judge_run``."""
        from sightline.analysis.policy_verdict import PolicyLimits
        from sightline.arms.arm import parse_budget

        text = self.reference
        return {
            "reference": None if text is None else parse_budget(text, f"--reference {text}", needed=True),
            "limits": PolicyLimits(self.tolerance, self.most_keep, self.cost_below),
            **self.model_dump(include={"least_n", "draws", "seed"}),
        }


@app.command()
@with_options
def fit(
    run: Annotated[Place, place_argument("RUN")],
    policy: str,
    selector: str,
    levels: str,
    out: Annotated[Path, Written(".json")],
    argument: Annotated[list[str] | None, Flag(metavar="NAME=VALUE")] = None,
    objective: str | None = None,
    *,
    verdict_options: VerdictOptions,
) -> None:
    """Choose a policy's arguments on half of a run's probes and judge it on the others. No model is needed.

    Exit code 0: go; 1: no-go or refused; 2: error.
    """
    from typing import cast

    from sightline.analysis.policy_verdict import tune
    from sightline.arms.arm import parse_levels
    from sightline.commands.report import errors_are_two
    from sightline.rows.run import load_run

    with errors_are_two("the policy could not be judged"):
        shown = f"policy:{policy}:{selector}:{levels}"
        opened = load_run(run)
        tuned = tune(
            opened,
            policy,
            selector,
            parse_levels(levels, shown),
            given=_given(policy, argument or (), shown),
            objective=cast(Any, objective),
            **verdict_options.arguments(),
        )
        _say_joined(opened)
        arm = _write(out, run, tuned, selector, levels)
        development = tuned.development
        say(
            f"chosen      {tuned.policy} of {tuned.tried} tried, by {tuned.objective}; development: score "
            f"{development.score:.3f}, keep {development.keep:.3f}, cost {development.cost:.3f} (n = {development.n})"
        )
        _print(tuned.verdict, "held-out probes")
        say(f"wrote       {out}\narm         {arm}")
    if not tuned.verdict.go:
        raise typer.Exit(1)


@app.command()
@with_options
def judge(
    run: Annotated[Place, place_argument("RUN")],
    arm: list[str] | None = None,
    everything: Annotated[bool, Flag(name="--all")] = False,
    *,
    verdict_options: VerdictOptions,
) -> None:
    """Judge the policy arms of a run on its held-out half. Exit code 0: go for each; 1: not; 2: error."""
    from sightline.analysis.policy_verdict import judge_run
    from sightline.commands.report import errors_are_two
    from sightline.rows.run import load_run

    with errors_are_two("the policies could not be judged"):
        opened = load_run(run)
        verdicts = judge_run(opened, arm or (), everything=everything, **verdict_options.arguments())
        _say_joined(opened)
        for verdict in verdicts:
            _print(verdict, "probes" if everything else "held-out probes")
    if not all(verdict.go for verdict in verdicts):
        raise typer.Exit(1)


def _say_joined(run: Run) -> None:
    if run.joined:
        say(f"note: {run.joined}", err=True)


def _given(policy: str, pairs: Sequence[str], shown: str) -> dict[str, Any]:
    """``NAME=VALUE`` as the types that the policy declares."""
    from sightline.arms.arm import read_pairs
    from sightline.policies import POLICIES

    return read_pairs(POLICIES.get(policy), policy, pairs, shown)


def _write(out: Path, run: Place, tuned: TunedPolicy, selector: str, levels: str) -> str:
    """The file, and the arm that runs what it holds."""
    import json
    from dataclasses import asdict

    from sightline.arms.arm import changed_arguments
    from sightline.core.text import finite
    from sightline.places.writing import is_replaced, write_whole

    policy, contents, verdict = tuned.policy, tuned.policy.contents(), tuned.verdict
    name, _, own = selector.partition(":")
    said = [pair for pair in changed_arguments(policy) if contents is None or not pair.startswith("file=")]
    said = [
        *(() if contents is None else (f"file={out if is_replaced(out) else 'FILE'}",)),
        *said,
        *(f"{name}.{pair}" for pair in own.split(",") if pair),
    ]
    arm = ":".join(filter(None, ("policy", policy.name, name, levels, ",".join(said))))
    found = {
        "policy": policy.name,
        "selector": selector,
        "levels": levels,
        **(contents or {}),
        "arm": arm,
        "run": run.name,
        "objective": tuned.objective,
        "tried": tuned.tried,
        "development": asdict(tuned.development),
        "held_out": {
            "policy": asdict(verdict.policy),
            "fixed": [asdict(each) for each in verdict.fixed],
            "reference": verdict.reference,
            "differences": {task: asdict(each) for task, each in verdict.differences.items()},
        },
        "no_worse": verdict.no_worse,
        "gate": verdict.words,
        "go": verdict.go,
    }
    write_whole(out, (json.dumps(finite(found), indent=2) + "\n").encode())
    return arm


def _print(verdict: PolicyVerdict, probes: str) -> None:
    """Every fixed budget and the policy on the same probes, then the gate."""
    from sightline.core.table import TableColumn, print_rows
    from sightline.progress import SafeConsole

    tasks = list(verdict.policy.scores)
    with_alarms = verdict.policy.hfpr == verdict.policy.hfpr
    headings = [*("Score" if len(tasks) == 1 else task for task in tasks), *(["hFPR"] if with_alarms else [])]
    numbers = (*headings, "Keep", "Cost", f"Score - {verdict.reference}")

    def row(line: PolicyFigures, difference: str) -> list[str]:
        alarms = [f"{line.hfpr:.3f}"] if with_alarms else []
        scores = (f"{line.scores[task]:.3f}" for task in tasks)
        return [line.name, *scores, *alarms, f"{line.keep:.3f}", f"{line.cost:.3f}", difference]

    said = []
    for task, found in verdict.differences.items():
        interval = f" [{found.low:+.3f}, {found.high:+.3f}]" if found.low == found.low else ""
        said.append(f"{found.value:+.3f}{interval}{'' if len(tasks) == 1 else f' {task}'}")
    lines = [*(row(each, "") for each in verdict.fixed), row(verdict.policy, "\n".join(said))]
    columns = [TableColumn("", ""), *(TableColumn(heading, heading, "score") for heading in numbers)]
    print_rows(SafeConsole(), columns, lines, title=f"{verdict.policy.n} {probes}")
    if not verdict.refused:
        idle = f"{', '.join(verdict.no_worse)} scores as much at no more cost"
        say(f"fixed       {idle if verdict.no_worse else 'no fixed budget scores as much at no more cost'}")
    say(f"gate        {verdict.words}")
