"""What is typed: arms, rules of a gate, thresholds, image options."""

from random import Random

import torch

from sightline import SELECTORS, LayerSelector, SightlineError
from sightline.arms import parse_arm
from sightline.arms.arm import arguments_of
from sightline.backbones import options_for
from sightline.commands.options import pairs
from sightline.core.selection import misnamed
from sightline.cost.selection import Inputs
from sightline.gate import rules as gate_rules
from sightline.interventions import families
from sightline.policies import POLICIES
from sightline.statistics import thresholds
from sightline.statistics.metrics import METRICS
from tests.fuzz import mutations
from tests.fuzz.subjects.base import FileSubject, Subject

NUMBERS = (
    "nan", "inf", "-inf", "-1", "0", "1", "2", "0.5", "1.5", "-0.5", "1e-9", "1e9", "1e308", "-1e308", "1e-320", "3",
    "7", "16", "100", "99999999999", "9223372036854775807", "9223372036854775808", "-99999999999", "none", "true", "no",
)  # fmt: skip
BUDGETS = (
    "0.3", "0.01", "1.0", "1t", "5t", "16t", "100000t", "0.3/tile", "4t/tile", "0", "-0.3", "1.01", "nan", "9" * 30,
)  # fmt: skip
N, LAYERS = 16, 4
"""Tokens and layers that accepted arms are tried on."""


class Arms(Subject, name="arms", share=30):
    """Arms with arguments of all kinds; an accepted method chooses among a few tokens, which must come to an end."""

    def prepare(self) -> None:
        self.selectors = [name for name in SELECTORS if name != "masks"]
        self.policies = list(POLICIES)
        self.interventions = [str(one) for family in families().values() for one in family]

    def make(self, random: Random) -> str:
        name = random.choice(self.selectors)
        text = f"{name}:{random.choice(BUDGETS) if random.random() < 0.4 else '0.3'}"
        if random.random() < 0.1:
            policy, levels = random.choice(self.policies), random.choice(("0.3/0.5", "0.3", "1t/5t", "0.5/0.3"))
            text = f"policy:{policy}:{name}:{levels}"
        known = list(arguments_of(SELECTORS.get(name)))
        chosen = random.sample(known, min(len(known), random.randint(0, 2)))
        if chosen:
            text += ":" + ",".join(f"{key}={random.choice(NUMBERS)}" for key in chosen)
        if random.random() < 0.1:
            text += f"+{random.choice(self.interventions)}"
        return mutations.text_like(text, random) if random.random() < 0.25 else text

    def read(self, given: str) -> None:
        arm = parse_arm(given)
        selector = arm.selector
        if selector.resizes or arm.policy is not None or selector.name == "masks":
            return
        for signal in selector.needs:
            problem = misnamed(signal, selector.inside)
            if problem is not None:  # as a run says it before a model is loaded
                raise SightlineError(problem)
        k = selector.count("", N, arm.budget)
        inputs = Inputs(N, torch.device("cpu"), seed=1)
        with torch.inference_mode():
            if isinstance(selector, LayerSelector):
                schedule = selector.schedule(N, k, LAYERS)
                for count in schedule.values():
                    selector.cut(inputs.state(selector.needs), count)
            else:
                selector.select(inputs.view(selector.needs), k)


class GateRules(FileSubject, name="gate rules", share=8):
    def content(self, random: Random) -> bytes:
        metric, other = random.choice(list(METRICS)), random.choice(list(METRICS))
        difference = f"{metric}(full) - {random.choice((metric, other))}(grid:0.3) <= -1e-3 # why"
        single = (f"{metric}(target:0.3) >= 0.5", f"{metric}(full) > 1e999", f"{metric}(a(b)c) ≥ −0.5")
        rule = random.choice((difference, *single, "accuracy(full) > 0"))
        return mutations.text_like(rule, random).encode(errors="surrogatepass")

    def read(self, given: bytes) -> None:
        for rule in gate_rules.read_rules(self.file):
            gate_rules.parse_rule(rule)


class Thresholds(Subject, name="thresholds", share=5):
    def make(self, random: Random) -> str:
        rule = random.choice(("2.043", "full-dev", "own-dev", "shared", "hfpr<=0.05", "m=0.5", "m=hfpr<=0.1", "a=b=c"))
        return mutations.text_like(rule, random)

    def read(self, given: str) -> None:
        thresholds.check_models(thresholds.read_thresholds([given]), ["m", "llava"])


class ImageOptions(Subject, name="image options", share=6):
    """``--image-option NAME=VALUE`` for every architecture."""

    def make(self, random: Random) -> tuple[str, str]:
        kind = random.choice(("llava", "qwen3_vl", "internvl", "idefics3", "mistral3", "gemma3"))
        name = random.choice(("max_pixels", "min_pixels", "max_tiles", "min_tiles", "longest_edge", "crop", "x"))
        odd = ("802816", "[1]", "{a: 1}", "!!python/name:os.system", "2001-01-01", "&a [*a]", "'")
        value = random.choice((*NUMBERS, *odd))
        pair = f"{name}={value}"
        return kind, mutations.text_like(pair, random) if random.random() < 0.2 else pair

    def read(self, given: tuple[str, str]) -> None:
        kind, pair = given
        options_for(kind, given=pairs([pair], "--image-option"))
