"""Data sets of the Hugging Face hub, named as models are: the parquet files of one split, fetched once into its cache.

``org/name`` is enough where a data set has one part; of several, ``org/name:PART`` names one, by the folder of its
files and the split that their names begin with: ``lmms-lab/DocVQA:DocVQA/validation``. ``org/name@REVISION`` is
a commit.
"""

from __future__ import annotations

import re
from pathlib import Path

from sightline.errors import SightlineError

HUB_ID = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(@(?P<revision>[\w.-]+))?(:(?P<part>[\w./-]+))?")
SHARD = re.compile(r"(?P<part>.*?)(-\d{5}-of-\d{5}(-[0-9a-f]+)?)?\.parquet")
"""``DocVQA/validation-00000-of-00006.parquet`` is a shard of the part ``DocVQA/validation``."""
SPLITS = ("validation", "val", "test")
"""Taken unasked, the first that there is: what a model was not trained on."""


def is_hub_data(source: Path) -> bool:
    """Whether a name that is no file here can be one of the hub; ``data/typo`` beside a folder ``data`` is a slip."""
    found = HUB_ID.fullmatch(str(source))
    return found is not None and not source.exists() and not source.suffix and not Path(found["name"]).parent.is_dir()


def hub_files(source: Path) -> list[Path]:
    """The files of the one part that is meant, in order; refused in a line where it cannot be had or is not one."""
    found = HUB_ID.fullmatch(str(source))
    assert found is not None
    name, revision = found["name"], found["revision"]
    try:
        from huggingface_hub import HfApi, snapshot_download

        shards: dict[str, list[str]] = {}  # by part, each in order
        for file in sorted(HfApi().list_repo_files(name, repo_type="dataset", revision=revision)):
            if shard := SHARD.fullmatch(file):
                shards.setdefault(shard["part"], []).append(file)
        part = _part(name, shards, found["part"])
        folder = snapshot_download(name, repo_type="dataset", revision=revision, allow_patterns=shards[part])
    except SightlineError:
        raise
    except Exception as error:  # no package, no network, no such data set: each has a kind of its own
        raise SightlineError(
            f"there is no file {source} here, and as a data set of the hub it cannot be fetched "
            f"({type(error).__name__}): that takes huggingface_hub and a network; or fetch its parquet files elsewhere "
            "and name them"
        ) from error
    return [Path(folder, file) for file in shards[part]]


def _part(name: str, shards: dict[str, list[str]], asked: str | None) -> str:
    """The part that is asked for; else the only one, or the only one of the first of ``SPLITS`` that there is."""
    known = ", ".join(shards)
    if not shards:
        raise SightlineError(f"the data set {name} has no parquet files; fetch what it has and name the files")
    if asked is not None:
        if asked not in shards:
            raise SightlineError(f"the data set {name} has no part {asked}; choose from {known}")
        return asked
    by_split = ([part for part in shards if Path(part).name == split] for split in SPLITS)
    meant = list(shards) if len(shards) == 1 else next((parts for parts in by_split if parts), [])
    if len(meant) != 1:
        raise SightlineError(
            f"the data set {name} has several parts: {known}; name one, {name}:{next(iter(shards))} say"
        )
    return meant[0]
