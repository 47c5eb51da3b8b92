"""Answers decoded side by side against the same answers decoded one by one: how many agree, token for token.

    python benchmarks/decoding_agreement.py [--model FOLDER] [--probes FILE --images DIR] [--limit N]

In float32 the two differ by rounding of the last bits only; in half precision a batch may be rounded another way than
a single sequence, and where two tokens are almost equally likely the other one is said. Prints one line per precision
and arm.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from sightline.answering.answerer import Answerer
from sightline.answering.scorers.spoken import OpenAnswer
from sightline.arms.arm import parse_arm
from sightline.auditing.loop import encode_all
from sightline.backbones import load_backbone
from sightline.backbones.attention import without_planned_kernels
from sightline.backbones.decoding import Decoder
from sightline.probes import read_probes
from sightline.probes.images import open_image

ASSETS = Path(__file__).resolve().parents[1] / "src" / "sightline" / "assets"
ARMS = ("full", "target:0.3", "random:0.3", "fastv:0.5")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--model", default=str(ASSETS / "reader"))
    parser.add_argument("--probes", type=Path, default=ASSETS / "scenes" / "confirmation" / "open_probes.jsonl")
    parser.add_argument("--images", type=Path, default=ASSETS / "scenes" / "confirmation" / "open_images")
    parser.add_argument("--limit", type=int, default=300, help="questions")
    parser.add_argument("--together", type=int, default=32, help="prefixes read in one batch")
    parser.add_argument("--dtypes", default="float32,bfloat16")
    asked = parser.parse_args()
    probes = read_probes(asked.probes).probes[: asked.limit]
    print(f"{'precision':<10} {'arm':<12} {'answers':>8} {'alike':>8} {'share':>8}")
    for dtype in asked.dtypes.split(","):
        backbone = load_backbone(asked.model, dtype=dtype)
        answerer, language = Answerer(backbone, OpenAnswer()), backbone.language
        pixels = {name: backbone.preprocess(open_image(asked.images, name)) for name in {p.image for p in probes}}
        encoded = dict(zip(pixels, encode_all(backbone, list(pixels.values()), frozenset(), 8), strict=True))
        for text in ARMS:
            passed = answerer.over(parse_arm(text), probes, [encoded[probe.image] for probe in probes])
            decoder, alike = Decoder(language, 32, backbone.stop_ids), 0
            with without_planned_kernels(), torch.inference_mode():
                for start in range(0, len(probes), asked.together):
                    group = list(range(start, min(len(probes), start + asked.together)))
                    prefixes = [passed.prefix(i) for i in group]
                    said = decoder.launch(prefixes, passed.cutter(group, prefixes)).read()
                    for i, prefix, saying in zip(group, prefixes, said, strict=True):
                        alone = language.generate(prefix, 32, backbone.stop_ids, passed.cutter([i], [prefix]))
                        alike += saying.tokens == alone
            print(f"{dtype:<10} {text:<12} {len(probes):>8} {alike:>8} {alike / len(probes):>8.4f}", flush=True)


if __name__ == "__main__":
    main()
