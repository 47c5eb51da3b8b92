"""Writes the generated parts of docs/methods.md, docs/signals.md, docs/statistics.md and docs/runs.md from the code,
and those of docs/leaderboard.md from docs/leaderboard.json and docs/leaderboard-open.json, which `sightline leaderboard
--demo` wrote.

    python docs/generate.py [GOLDEN_FOLDER]

A test compares the files with what this module makes, so they cannot go stale.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import MISSING, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from sightline.arms.arm import parameters
from sightline.auditing.config import AuditConfig, flag_of
from sightline.backbones.base import BACKBONES, Backbone
from sightline.backbones.loading import with_defaults
from sightline.commands.options import default_of
from sightline.core.selection import PARITY_WORDS, PUBLISHED_BLOCKS, TwoStages, form_for
from sightline.cost.selection import Inputs
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS
from sightline_leaderboard.page import markdown
from sightline_leaderboard.standings import read_record

DOCS = Path(__file__).parent
BEGIN, END = "<!-- generated: {} -->", "<!-- end of generated part -->"
ARCHITECTURES = {"llava": "LLaVA-1.5", "qwen3_vl": "Qwen3-VL", "internvl": "InternVL3.5"}
GOLDEN_NAMES = {
    "anchorprune": ("anchorprune", "anchorprune_qwen"),
    "anchorprune_llava": ("anchorprune",),
    "visionzip_qwen3": ("visionzip_qwen",),
    "vispruner_siglip": ("vispruner",),
    "cdpruner_openvino": ("cdpruner",),
    **{f"{name}_qwen": (name,) for name in ("flowcut", "holov", "nuwa", "prumerge_plus", "prunesid", "vscan")},
}
"""Golden files that are not called after the one selector they test."""
EXTRA_NAMES = {"topk": "target", "bottomk": "bottom"}
SIGNALS = (
    ("vision.hidden@L", "(N, C)", "hidden state L of the vision tower, patches only"),
    ("vision.cls@L", "(C,)", "the class token's hidden state L"),
    ("vision.hidden_mean@A:B", "(N, C)", "mean of hidden states A..B, both included"),
    ("vision.cls_attention@L", "(H, N)", "attention of the class token in block L; its attention to itself is cut off"),
    ("vision.received@L", "(N,)", "attention a token receives in block L, mean over heads and queries"),
    ("vision.query@L", "(H, N, d)", "queries of block L (after rotary embedding, where the tower has one)"),
    ("vision.key@L", "(H, N, d)", "keys of block L (after rotary embedding, where the tower has one)"),
    ("vision.value@L", "(H, N, d)", "values of block L"),
    ("vision.cls_key@L", "(H, d)", "the class token's key in block L"),
    ("vision.cls_query@L", "(H, d)", "the class token's query in block L"),
    ("vision.cls_value@L", "(H, d)", "the class token's value in block L"),
    ("clip.image", "(N, P)", "patches in CLIP's joint space; needs `--clip`"),
    ("clip.text", "(T, P)", "the question in CLIP's joint space, a row per 77 tokens; needs `--clip`"),
    ("image.pixels", "(N, p)", "pixel values that each token is made from, as the tower is shown them"),
    ("projector.sensitivity", "(N,)", "how far the projector moves a token whose state is disturbed, 64 directions"),
    ("lm.attention", "(H, L, L)", "causal attention of the layer that just ran"),
    ("lm.attention_last", "(H, L)", "its last prompt row"),
    ("lm.next_attention", "(H, L, L)", "causal attention that the next layer would compute"),
    ("lm.next_attention_last", "(H, L)", "its last prompt row"),
    ("lm.next_query", "(H, L, d)", "rotated queries that the next layer would compute"),
    ("lm.next_key", "(Hkv, L, d)", "rotated keys that it would compute"),
    ("lm.query", "(H, L, d)", "rotated queries of the layer that just ran"),
    ("lm.key", "(Hkv, L, d)", "its rotated keys"),
    ("lm.value", "(Hkv, L, d)", "its values"),
    ("lm.bare_query", "(H, L, d)", "its queries before positions are rotated in"),
    ("lm.bare_key", "(Hkv, L, d)", "its keys before positions are rotated in"),
    ("lm.rotary", "(2, L, d)", "cosines and sines that it rotates queries and keys by"),
    ("lm.input", "(L, D)", "what that layer was given"),
    ("lm.parts", "(2, 2, L, D)", "of its attention and its feed-forward part, what each read and what it made"),
    ("lm.normed", "(L, D)", "its output through the model's final norm"),
    ("lm.embeds", "(L', D)", "input embeddings of the whole prompt, before any cut"),
    ("lm.scout", "(H, L + 1)", "products of the query of the method's own token with all keys, its own last, scaled"),
)


def stub(model_type: str) -> Backbone:
    """A backbone that holds no weights but can say what it serves."""
    backbone = object.__new__(BACKBONES.get(model_type))
    backbone.model = SimpleNamespace(
        config=SimpleNamespace(
            vision_config=SimpleNamespace(spatial_merge_size=2, num_hidden_layers=24), vision_feature_layer=-2
        )
    )
    return backbone


def paragraph(kind: Any, heading: str) -> str:
    """The docstring's ``heading:`` paragraph on one line, up to the next heading or blank line."""
    text = inspect.getdoc(kind) or ""
    found = re.search(rf"^{heading}: (.*?)(?=\n\n|\n[A-Z][A-Za-z -]+: |\Z)", text, re.DOTALL | re.MULTILINE)
    return " ".join(found[1].split()) if found else ""


def reference(kind: Any) -> str:
    own = "paper's artifact" in " ".join((inspect.getdoc(kind) or "").split())
    return paragraph(kind, "Reference") or ("the audited paper" if own else "")


def needs_of(selector: Any) -> str:
    """Signals, query span and boxes; without signals a method looks at projected tokens, or at geometry alone."""
    if selector.role in ("reference", "replay") or selector.resizes:
        return "-"
    looks = [f"`{name}`" for name in with_ranges(selector.needs)]
    query = "none" if selector.inside else selector.query
    if not looks and selector.inside:
        looks = ["hidden states"]
    elif not looks:
        looks = ["tokens" if query != "none" or selector.needs_file or reads_tokens(selector) else "geometry"]
    if query != "none":
        looks.append(f"{query} embeddings")
    head = ["a trained head"] if selector.needs_file else []
    return ", ".join([*looks, *head, *(["boxes"] if selector.reads_boxes else [])])


def with_ranges(needs: Iterable[str]) -> list[str]:
    """Names of signals, those of one kind and many layers as one: ``vision.key@0..23``."""
    layers: dict[str, list[str]] = {}
    for kind, _, layer in (name.partition("@") for name in needs):
        layers.setdefault(kind, []).append(layer)
    many = {kind: sorted(map(int, own)) for kind, own in layers.items() if len(own) > 3}
    short = [f"{kind}@{own[0]}..{own[-1]}" for kind, own in many.items()]
    return sorted([*short, *(name for name in needs if name.partition("@")[0] not in many)])


def reads_tokens(selector: Any) -> bool:
    """Whether other tokens at the same places lead to another choice."""
    views = [Inputs(64, torch.device("cpu"), seed).view(frozenset()) for seed in (0, 1)]
    first, second = (selector.select(view, 20).anchors.sort().values for view in views)
    return not torch.equal(first, second)


def required(kind: Any) -> list[str]:
    """Arguments without a default."""
    return [field.name for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]


def arguments_of(kind: Any) -> str:
    """The arguments with their defaults; one without a default must be given."""
    if required(kind):
        return ", ".join(f"`{name}` (required)" for name in required(kind))
    return f"`{parameters(kind)}`" if parameters(kind) else ""


def action(selector: Any) -> str:
    """Whether the method deletes or merges, and where."""
    if selector.inside:
        where = "before and inside" if isinstance(selector, TwoStages) else "inside"
        return f"{'merges' if selector.merges else 'deletes'} {where} the LLM"
    if selector.resizes:
        return "shrinks the image"
    if not selector.merges:
        return "deletes nothing" if selector.role == "reference" else "deletes"
    selection = selector.select(Inputs(64, torch.device("cpu"), seed=0).view(selector.needs), 20)
    return "merges tokens" if selection.merge_at == "tokens" else "merges vision states"


def made(name: str) -> Any:
    """The method with its default arguments; those that must be given have no say in what is documented here."""
    return with_defaults(SELECTORS.get(name))


def golden_counts(folder: Path) -> Counter[str]:
    """Golden cases per selector."""
    counts: Counter[str] = Counter()
    for path in sorted(folder.glob("*.npz")):
        metas = [json.loads(str(text)) for text in np.load(path, allow_pickle=False)["meta"]]
        if path.stem == "audit_extra_selectors":
            for meta in metas:
                counts[EXTRA_NAMES.get(meta["params"]["selector"], meta["params"]["selector"])] += 1
        else:
            for name in GOLDEN_NAMES.get(path.stem, (path.stem,)):
                counts[name] += len(metas)
    return counts


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    header = list(header)
    lines = [header, ["---"] * len(header), *(list(row) for row in rows)]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def counts() -> str:
    """How many selectors are whose, by what is promised about them."""
    kinds = list(SELECTORS.items())
    others = [name for name, kind in kinds if kind.published_by_others()]
    groups = {
        "methods that others published": others,
        "methods of the audited paper": [name for name, kind in kinds if kind.role == "method" and name not in others],
        "controls, `resize` among them": [name for name, kind in kinds if kind.role == "control"],
        "oracles": [name for name, kind in kinds if kind.role == "oracle"],
        "the unpruned model, and masks from a file": [n for n, kind in kinds if kind.role in ("reference", "replay")],
    }
    rows = []
    for group, names in groups.items():
        of = Counter(SELECTORS.get(name).parity for name in names)
        rows.append([group, str(len(names)), *(str(of[parity] or "-") for parity in PARITY_WORDS)])
    said = f"{len(others)} of the {len(kinds)} selectors are methods that others published."
    return f"{said}\n\n{table(('whose', 'selectors', *PARITY_WORDS), rows)}"


def methods(golden: Path) -> str:
    counts = golden_counts(golden)
    rows = []
    for name in SELECTORS:
        kind: Any = SELECTORS.get(name)
        idea = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
        rows.append(
            [f"`{name}`", idea, reference(kind), kind.role, needs_of(made(name)), kind.parity, action(made(name)),
             str(counts[name]) if counts[name] else "-", arguments_of(kind)]
        )  # fmt: skip
    columns = ("method", "idea", "paper", "role", "needs", "parity", "acts", "golden cases", "arguments")
    return table(columns, rows)


def refusals() -> str:
    rows = []
    for name in SELECTORS:
        for model_type, title in ARCHITECTURES.items():
            backbone = stub(model_type)
            if made(name).resizes and backbone.fixed_tokens is not None:
                rows.append([f"`{name}`", title, backbone.fixed_tokens])
            method = form_for(made(name), backbone.lacks, backbone.unprojected, None)
            reasons = [(need, backbone.lacks(need)) for need in sorted(method.needs)]
            unmet = [(need, reason) for need, reason in reasons if reason is not None]
            if unmet:
                need, reason = unmet[0]
                rows.append([f"`{name}`", title, f"needs `{need}`: {reason}"])
            elif method.merges_vision and (unprojected := backbone.unprojected()) is not None:
                rows.append([f"`{name}`", title, unprojected])
    return table(("method", "refused on", "why"), rows)


def forms() -> str:
    """What its authors published of a method for models that lack what it reads, or that nothing is."""
    rows = []
    for name in SELECTORS:
        other = made(name).other_form(PUBLISHED_BLOCKS)
        if other is not None:
            values = ", ".join(f"{field.name}={getattr(other, field.name)}" for field in fields(other))
            rows.append([f"`{name}`", other.form, needs_of(other), action(other), values or "-"])
        elif made(name).unpublished:
            rows.append([f"`{name}`", made(name).unpublished, "refused", "", ""])
    return table(
        ("method", "published for models that lack what it reads", "needs there", "acts", "arguments there"), rows
    )


def signals() -> str:
    backbones = {title: stub(model_type) for model_type, title in ARCHITECTURES.items()}
    rows = []
    for name, shape, meaning in SIGNALS:
        probe = name.replace("@L", "@-1").replace("@A:B", "@0:1")
        served = ["yes" if backbone.lacks(probe) is None else "no" for backbone in backbones.values()]
        users = [f"`{method}`" for method in SELECTORS if any(_same(need, name) for need in made(method).needs)]
        rows.append([f"`{name}`", shape, meaning, *served, ", ".join(users) or "-"])
    return table(("signal", "shape", "what it is", *backbones, "read by"), rows)


def config_keys() -> str:
    rows = []
    for name, field in AuditConfig.model_fields.items():
        default = "**required**" if field.is_required() else default_of(flag_of(name), field)
        default = str(field.default).lower() if isinstance(field.default, bool) else default
        rows.append([f"`{name}`", f"`{flag_of(name)}`", default, field.description or ""])
    return table(("key", "flag", "default", "what it is"), rows)


def image_options() -> str:
    rows = []
    for model_type, title in ARCHITECTURES.items():
        kind = BACKBONES.get(model_type).image_options
        for name, sentence in kind.described().items():
            published = json.dumps(kind.artifact[name]) if name in kind.artifact else "-"
            rows.append([f"{title} (`{model_type}`)", f"`{name}`", sentence, published])
    return table(("architecture", "option", "what it does", "artifact profile"), rows)


def _same(need: str, name: str) -> bool:
    return need.partition("@")[0] == name.partition("@")[0]


def replaced(text: str, part: str, content: str) -> str:
    """The document with the generated part between its two comments exchanged."""
    begin = BEGIN.format(part)
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(END)
    return f"{before}{begin}\n{content}\n{END}{after}"


def metrics() -> str:
    """The table of every metric, in the order in which reports show them."""
    lines = ["| name | label | definition | averages over | better |", "| --- | --- | --- | --- | --- |"]
    lines += [
        f"| `{metric.name}` | {metric.label} | {metric.definition} | {metric.over} | {metric.better} |"
        for metric in METRICS.values()
    ]
    return "\n".join(lines)


def documents(golden: Path) -> dict[Path, str]:
    """Each generated document as it should be."""
    made_methods = (DOCS / "methods.md").read_text(encoding="utf-8")
    made_methods = replaced(made_methods, "counts", counts())
    made_methods = replaced(made_methods, "methods", methods(golden))
    made_methods = replaced(made_methods, "refusals", refusals())
    made_methods = replaced(made_methods, "forms", forms())
    made_signals = replaced((DOCS / "signals.md").read_text(encoding="utf-8"), "signals", signals())
    made_runs = (DOCS / "runs.md").read_text(encoding="utf-8")
    made_runs = replaced(made_runs, "config keys", config_keys())
    made_runs = replaced(made_runs, "image options", image_options())
    made_statistics = replaced((DOCS / "statistics.md").read_text(encoding="utf-8"), "metrics", metrics())
    made_board = (DOCS / "leaderboard.md").read_text(encoding="utf-8")
    for part in ("leaderboard", "leaderboard-open"):
        made_board = replaced(made_board, part, markdown(read_record(DOCS / f"{part}.json")).rstrip())
    return {
        DOCS / "leaderboard.md": made_board,
        DOCS / "methods.md": made_methods,
        DOCS / "signals.md": made_signals,
        DOCS / "statistics.md": made_statistics,
        DOCS / "runs.md": made_runs,
    }


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS.parent / "tests" / "data" / "golden"
    for path, text in documents(folder).items():
        path.write_text(text, encoding="utf-8")
