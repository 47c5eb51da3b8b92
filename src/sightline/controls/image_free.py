"""Image-dependence controls: the same questions about a gray image, and about somebody else's image.

What a model still answers right then was never read off the image.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.probes.lexical_audit import NORMALISERS, audit_negatives
from sightline.probes.regions import ImageRegions

SEEDS = (101, 202, 303)
ATTEMPTS = 1000
BLANK = "blank"
_WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


def mismatch_view(seed: int) -> str:
    return f"image_mismatch_seed{seed}"


def pairs_by_image(probes: Iterable[Probe]) -> dict[str, tuple[Probe, Probe]]:
    """Image id -> (yes probe, no probe). Anything else than exactly one of each on one image is refused."""
    groups: dict[str, list[Probe]] = {}
    for probe in probes:
        groups.setdefault(probe.image_id, []).append(probe)
    pairs = {}
    for image_id, members in groups.items():
        by_label = {probe.label: probe for probe in members}
        if len(members) != 2 or len(by_label) != 2 or members[0].image != members[1].image:
            found = ", ".join(probe.label for probe in members)
            raise SightlineError(
                f"image {image_id!r} has probes ({found}); image controls need exactly one yes and one no per image"
            )
        pairs[image_id] = (by_label["yes"], by_label["no"])
    return pairs


def blank_probes(probes: Sequence[Probe], *, as_view: bool = True) -> list[Probe]:
    """Every question about an image of the same size that is gray all over."""
    pairs_by_image(probes)
    facts = {"control_type": BLANK, "control_seed": None, "control_image_id": None}
    return [
        replace(
            probe,
            occlude=(_WHOLE,),
            view=BLANK if as_view else probe.view,
            extra={**probe.extra, "original_image": probe.image, **facts},
        )
        for probe in probes
    ]


def mismatched_probes(
    probes: Sequence[Probe], mapping: Mapping[str, str], seed: int, *, as_view: bool = True
) -> list[Probe]:
    """Every question about the image that ``mapping`` (source id -> control id) assigns; a pair shares one image."""
    files = {probe.image_id: probe.image for probe in probes}
    view = mismatch_view(seed)
    return [
        replace(
            probe,
            image=files[mapping[probe.image_id]],
            view=view if as_view else probe.view,
            extra={
                **probe.extra,
                "original_image": probe.image,
                "control_type": "image_mismatch",
                "control_seed": seed,
                "control_image_id": mapping[probe.image_id],
            },
        )
        for probe in probes
    ]


def normalised_words(texts: Iterable[str]) -> dict[str, set[str]]:
    """Normaliser -> the distinct forms of the texts under it, empty ones left out."""
    found = [text for text in texts if text]
    return {name: {form for text in found if (form := fold(text))} for name, fold in NORMALISERS.items()}


def collision(asked: Mapping[str, set[str]], shown: Mapping[str, set[str]]) -> tuple[str, str] | None:
    """The first (normaliser, form) that both sides have, or None."""
    for name in NORMALISERS:
        shared = asked[name] & shown[name]
        if shared:
            return name, min(shared)
    return None


def allowed_targets(
    pairs: Mapping[str, tuple[Probe, Probe]], words: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Image id -> the images, in order of id, that show none of the strings its two probes ask about.

    Neither probe's target nor source may equal a word of the other image under any of the seven normalisers. An image
    without annotated words is nobody's target: nothing is known about what it shows.
    """
    shown = {image_id: normalised_words(words.get(image_id, ())) for image_id in pairs}
    asked = {
        image_id: normalised_words(text for probe in pair for text in (probe.target_text, probe.source_text))
        for image_id, pair in pairs.items()
    }
    ids = sorted(pairs)
    known = [image_id for image_id in ids if words.get(image_id)]
    return {
        source: [target for target in known if target != source and collision(asked[source], shown[target]) is None]
        for source in ids
    }


def derangement(allowed: Mapping[str, Sequence[str]], seed: int) -> dict[str, str]:
    """A permutation without fixed points in which every image goes to an allowed one, drawn from ``seed``.

    Up to 1000 attempts with one generator: images with the fewest choices first (ties by a drawn number), each taking
    any allowed image that is still free.
    """
    ids = sorted(allowed)
    rng = random.Random(seed)
    for _ in range(ATTEMPTS):
        jitter = {image_id: rng.random() for image_id in ids}
        free = set(ids)
        mapping: dict[str, str] = {}
        for source in sorted(ids, key=lambda image_id: (len(allowed[image_id]), jitter[image_id])):
            choices = [target for target in allowed[source] if target in free]
            if not choices:
                break
            mapping[source] = rng.choice(choices)
            free.remove(mapping[source])
        if len(mapping) == len(ids):
            return mapping
    raise SightlineError(
        f"no collision-free assignment of wrong images found in {ATTEMPTS} attempts (seed {seed}); "
        "try another seed or leave out the images with the most common words"
    )


def mismatch_mapping(probes: Sequence[Probe], records: Iterable[ImageRegions], seed: int) -> dict[str, str]:
    """Source image id -> control image id. An impossible one is refused by naming the pair that collides."""
    pairs = pairs_by_image(probes)
    words = {record.image_id: record.texts for record in records}
    absent = [image_id for image_id in pairs if image_id not in words]
    if absent:
        raise SightlineError(
            f"{len(absent)} image{'s have' if len(absent) != 1 else ' has'} no region record (first: {absent[0]!r}); "
            "give the annotations that the probes were built from"
        )
    if len(pairs) < 2:
        raise SightlineError("wrong-image controls need at least two images; the probe set has one")
    allowed = allowed_targets(pairs, words)
    _refuse_impossible(allowed, pairs, words)
    return derangement(allowed, seed)


def _refuse_impossible(
    allowed: Mapping[str, Sequence[str]], pairs: Mapping[str, tuple[Probe, Probe]], words: Mapping[str, Sequence[str]]
) -> None:
    """A perfect matching must exist; where it does not, the message names an image and a pair that collides."""
    ids = sorted(allowed)
    taken = {target for targets in allowed.values() for target in targets}
    for image_id in ids:
        if allowed[image_id] and image_id in taken:
            continue
        others = [other for other in ids if other != image_id]
        if not allowed[image_id]:
            raise SightlineError(
                f"no wrong-image control exists: nothing can stand in for {image_id!r}; "
                f"{_clash(image_id, others, pairs, words)}; leave that image out"
            )
        clash = next((found for other in others if (found := _clash(other, [image_id], pairs, words))), "")
        raise SightlineError(
            f"no wrong-image control exists: {image_id!r} can stand in for no image; "
            f"{clash or 'it has no annotated words'}; leave that image out"
        )
    index = {image_id: i for i, image_id in enumerate(ids)}
    edges = [(index[source], index[target]) for source in ids for target in allowed[source]]
    rows, columns = np.array(edges).T
    graph = csr_matrix((np.ones(len(edges)), (rows, columns)), shape=(len(ids), len(ids)))
    partners = maximum_bipartite_matching(graph, perm_type="column")
    if (partners < 0).any():
        source = ids[int(np.flatnonzero(partners < 0)[0])]
        barred = [other for other in ids if other != source and other not in allowed[source]]
        raise SightlineError(
            f"no wrong-image control exists: {source!r} may only be shown as {', '.join(allowed[source][:3])}, which "
            f"others need too; {_clash(source, barred, pairs, words)}; leave that image out"
        )


def _clash(
    source: str, targets: Iterable[str], pairs: Mapping[str, tuple[Probe, Probe]], words: Mapping[str, Sequence[str]]
) -> str:
    """One sentence on the first target that shows what the source asks for, or "" when none does."""
    asked = normalised_words(text for probe in pairs[source] for text in (probe.target_text, probe.source_text))
    for target in targets:
        found = collision(asked, normalised_words(words[target]))
        if found:
            return f"{source!r} asks for {found[1]!r}, which {target!r} shows ({found[0]})"
    return ""


def plausible_images(probes: Sequence[Probe], records: Iterable[ImageRegions]) -> set[str]:
    """Images whose decoy is a word of some other image (NFKC and case folded, or letters and digits alone).

    Such a decoy is a word that exists: saying no to it cannot rest on its odd spelling.
    """
    audit = audit_negatives(probes, records)
    return {f.probe.image_id for f in audit.findings if f.other_images_casefold or f.other_images_alnum}


def image_free_probes(
    probes: Sequence[Probe], records: Sequence[ImageRegions], seeds: Sequence[int] = SEEDS
) -> tuple[list[Probe], dict[int, dict[str, str]]]:
    """One control set: every probe as it is, on gray, and on one wrong image per seed; and the assignments."""
    plausible = plausible_images(probes, records)
    marked = [
        replace(probe, extra={**probe.extra, "lexically_plausible": probe.image_id in plausible}) for probe in probes
    ]
    mappings = {seed: mismatch_mapping(probes, records, seed) for seed in seeds}
    found = [*marked, *blank_probes(marked)]
    for seed, mapping in mappings.items():
        found += mismatched_probes(marked, mapping, seed)
    return found, mappings
