"""Which rows of a run count, and as which image: a line for all that is left out, lists of probes to keep to."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.core.prefix import NO_CELLS
from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.places import read_text
from sightline.probes.typed_rows import is_decision_file, read_decision_file
from sightline.statistics.arm_rows import are_in_words, are_positives, as_names, looked_up
from sightline.statistics.metrics import ZERO_COVERAGE
from sightline.store.parts import RunFiles
from sightline.store.shard_files import Owner, ShardPiece

CONTROL = "control_type"
"""What a probe of such a file says in its ``extra``; whoever does not say it is not looked at."""


def recast_controls(frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]]) -> None:
    """Gives rows of one-condition control files (the artifact's layout) the view that our own control sets name.

    Their probes say ``orig`` though the image is gray or somebody else's: such rows must not pass for plain ones.
    ``probes`` are those of the run that say ``CONTROL``.
    """
    views = {}
    for probe in probes:
        extra = probe.get("extra") or {}
        kind = extra.get("control_type") if isinstance(extra, dict) else None
        if kind in ("blank", "image_mismatch") and probe.get("view", ORIGINAL) == ORIGINAL:
            views[str(probe["id"])] = kind if kind == "blank" else f"{kind}_seed{extra.get('control_seed')}"
    if views:
        control = looked_up(frame["probe_id"], pd.Series(views))
        recast = control.notna() & (frame["view"] == ORIGINAL)
        for name in ("view", "intervention"):
            frame[name] = as_names(frame[name]).where(~recast, control)


def finite_in_every_arm(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Leaves out arms without a single finite margin, then probes whose margin is non-finite in any arm."""
    if "margin" not in frame:
        return frame
    finite = pd.Series(np.isfinite(frame["margin"].to_numpy(dtype=float, na_value=np.nan)), index=frame.index)
    if finite.all():
        return frame
    dead = [str(arm) for arm, good in finite.groupby(frame["arm"]).any().items() if not good]
    if dead:
        notes.append(f"arm {', '.join(dead)} has no finite margin and is left out; the model's scores overflowed")
    alive = ~frame["arm"].isin(dead)
    bad = sorted(frame.loc[alive & ~finite, "probe_id"].unique())
    if bad:
        notes.append(
            f"{len(bad)} probe{'s have' if len(bad) > 1 else ' has'} a non-finite margin in some arm "
            f"(first: {bad[0]}) and {'are' if len(bad) > 1 else 'is'} left out of every arm"
        )
    return frame[alive & ~frame["probe_id"].isin(bad)]


def finite_alone(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Rows of interventions with a finite margin; each is paired with a plain row of its probe, so it stands alone."""
    if "margin" not in frame:
        return frame
    finite = np.isfinite(frame["margin"].to_numpy(dtype=float, na_value=np.nan))
    if finite.all():
        return frame
    notes.append(f"{int((~finite).sum())} rows under an intervention have a non-finite margin and are left out")
    found: pd.DataFrame = frame[finite]
    return found


def paired(frame: pd.DataFrame, notes: list[str]) -> pd.DataFrame:
    """Keeps the probes that every arm has: arms are compared on the same questions or not at all."""
    arms, probes = (pd.factorize(frame[name])[0].astype(np.int64) for name in ("arm", "probe_id"))
    answered = np.zeros((int(probes.max()) + 1, int(arms.max()) + 1), dtype=bool)
    answered[probes, arms] = True
    common: NDArray[np.bool_] = np.asarray(answered.all(axis=1))
    if common.all():
        return frame
    if not common.any():
        notes.append("no probe was answered by every arm yet: arms are summarised on different probes")
        return frame
    notes.append(f"{int((~common).sum())} of {len(common)} probes are missing from some arm and are left out")
    return frame[common[probes]].reset_index(drop=True)


def note_data(frame: pd.DataFrame, notes: list[str]) -> None:
    told = [name for name in ("probe_id", "image_id", "label", "n_regions", "score") if name in frame]
    probes = frame[told].drop_duplicates("probe_id")
    images = probes["image_id"].nunique()
    if images < 2:
        notes.append("fewer than two images: intervals resample images, so none can be given")
    labels = set(probes["label"].unique())
    if len(labels) < 2 and labels <= {"yes", "no"} and not are_in_words(probes).any():
        only = next(iter(labels), "no")
        notes.append(f"every probe has label {only}: AUROC and the rates of the other label are undefined")
    bare = int((probes["n_regions"].fillna(0) == 0).sum())
    if bare == len(probes):
        notes.append("no probe has a region: there is no evidence to trace, so every geometric column is empty")
    elif bare:
        notes.append(f"{bare} of {len(probes)} probes have no region; geometry is over the other {len(probes) - bare}")
    if bare < len(probes) and frame["ecr"].isna().all():
        notes.append(f"{NO_CELLS}, so every other geometric column is empty")
    hidden = unseen_evidence(frame)
    if hidden:
        notes.append(hidden)
    notes.extend(cut_off(frame) + fallen_back(frame))


def cut_off(frame: pd.DataFrame) -> list[str]:
    """A line about answers that ended at their longest instead of with a stop token; none where none did."""
    if "cut_off" not in frame:
        return []
    cut = frame["cut_off"].fillna(False).astype(bool)
    if not cut.any():
        return []
    longest = int(frame.loc[cut, "answer_tokens"].max())
    return [
        f"{int(cut.sum())} of {len(frame)} answers were cut off at the longest allowed ({longest} tokens) and are "
        f"scored as they stand ({_by_arm(frame, cut)}); --longest-answer allows more"
    ]


def fallen_back(frame: pd.DataFrame) -> list[str]:
    """A line about rows whose selector was given the whole prompt, since what it looks for is not in the question."""
    if "query_found" not in frame:
        return []
    lost = ~frame["query_found"].fillna(True).astype(bool)
    if not lost.any():
        return []
    arms = frame.loc[lost, "arm"].value_counts()
    told = ", ".join(f"{arms[arm]} of {(frame['arm'] == arm).sum()} rows of {arm}" for arm in arms.index if arms[arm])
    return [f"the text that the selector looks for is not in the question, so that it had the whole prompt: {told}"]


def oracle_words(box_source: object) -> str:
    """Said behind whatever is claimed of an oracle."""
    if box_source == "annotation":
        return "(oracle: reads the annotated boxes)"
    if box_source == "none":
        return "(oracle: knows what no deployed method could)"
    return "(oracle: reads boxes made from the annotation)"


def _by_arm(frame: pd.DataFrame, chosen: pd.Series[bool]) -> str:
    counts = frame.loc[chosen, "arm"].value_counts()
    return ", ".join(f"{arm}: {count}" for arm, count in counts.items() if count)


# Evidence that no token comes from, before anything is pruned: image processors that crop leave the margins out.

NOT_ALL = 1.0 - 1e-9
"""Less than this is not fully visible; the rest is the last digits of region coordinates."""


def unseen_evidence(frame: pd.DataFrame) -> str:
    """How many positives, or questions, of a run lie outside what its model sees, in one line; "" where none does."""
    if "visible" not in frame:
        return ""
    visible = frame.loc[are_positives(frame), ["probe_id", "visible"]].groupby("probe_id")["visible"].max().dropna()
    hidden = int((visible <= ZERO_COVERAGE).sum())
    partly = int((visible < NOT_ALL).sum()) - hidden
    if not hidden + partly:
        return ""
    first, place, rest = (hidden, "wholly", f", {partly} more in part") if hidden else (partly, "in part", "")
    in_words = bool(are_in_words(frame).any())
    whose, coverage = ("regions of", "ECR") if in_words else ("", "PosECR")
    share = f"{whose} {first} of {len(visible)} {'questions' if in_words else 'positives'} ({first / len(visible):.0%})"
    return (
        f"{share.strip()} lie {place} outside what the model sees{rest if partly else ''}: "
        f"{coverage} counts that as lost, Relative {coverage} is about the visible part alone"
    )


# A list of probes that a report keeps to: those that a person found valid, or that belong to one stratum.


@dataclass(frozen=True)
class ProbeList:
    """The probes a report is limited to, and the file that names them."""

    path: Path
    ids: frozenset[str]

    def chosen(self, rows: pd.DataFrame, run: Path, notes: list[str]) -> pd.DataFrame:
        """The rows of listed probes; says how many of each side the other one has."""
        present = set(rows["probe_id"].unique())
        found = present & self.ids
        if not found:
            raise SightlineError(f"{self.path} lists no probe of {run}; its ids look like {min(present)}")
        notes.append(f"limited to {len(found)} of {len(present)} probes, those that {self.path.name} lists")
        if len(found) < len(self.ids):
            notes.append(f"listed in {self.path.name} but not in the run: {len(self.ids) - len(found)}")
        return rows[rows["probe_id"].isin(found)]


def read_probe_list(path: Path) -> ProbeList:
    """One id per line; a probe file, whose lines are JSON objects with an id; or what people signed off as valid."""
    if is_decision_file(path):
        valid = read_decision_file(path).valid_probes
        if not valid:
            raise SightlineError(f"{path} found no probe valid, so there is nothing to report on")
        return ProbeList(path, valid)
    try:
        lines = read_text(path).split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise SightlineError(f"cannot read the probe list {path}: {reason}") from None
    ids = frozenset(name for line in lines if line.strip() and (name := _name(line.strip(), path)))
    if not ids:
        raise SightlineError(f"{path} lists no probe; write one probe id per line")
    return ProbeList(path, ids)


def _name(line: str, path: Path) -> str | None:
    """The id in a line; None for the line at the head of a probe file."""
    if not line.startswith("{"):
        return line
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise SightlineError(f"{path} has a line that is neither an id nor JSON: {error}") from None
    if "id" not in fields and "sightline_probes" not in fields:
        raise SightlineError(f"{path} has a line without an id: {line[:60]}")
    return str(fields["id"]) if "id" in fields else None


def sentence(clause: str, run: str = "") -> str:
    """A clause as a sentence behind the name of its run, where runs have names."""
    return f"{f'{run}: ' if run else ''}{clause[0].upper()}{clause[1:]}."


# Images are their pixels: ids of pictures that are equal are one image to every statistic. A picture is known by the
# digest of its decoded pixels, and by that of its file. Only plain views count: what a control shows of another image
# is not the image of its question.

KNOWN_BY = ("pixels", "digest")
"""Columns of an image record, each of which makes two images one where it says the same of both."""


def same_images(runs: Sequence[RunFiles]) -> dict[str, str]:
    """Image ids that show the same picture as another of their run -> the first of those by name.

    Runs are joined by ids alone: one of the artifact's wrong images says ``orig`` of pictures that are somebody else's.
    """
    return _same([image_pictures(run) for run in runs])


def _same(pictures: Sequence[pa.Table]) -> dict[str, str]:
    ids = pd.Categorical(pa.concat_tables(pictures).column("image_id").to_pandas())  # in the order of names
    first = _firsts(ids.codes.astype(np.int64), pictures)
    joined = np.flatnonzero(first != np.arange(len(first)))
    return dict(zip(ids.categories[joined], ids.categories[first[joined]], strict=True))


def _firsts(images: NDArray[np.int64], pictures: Sequence[pa.Table]) -> NDArray[np.int64]:
    """(M,) the lowest number of an image that each of the M images is one with, through any number of others.

    ``images`` are those of all lines of the tables. Two are linked by a mark: a digest within a run.
    """
    marks, count = [], 0
    for name in KNOWN_BY:
        codes = [pd.factorize(table.column(name).to_pandas())[0] for table in pictures]
        for each in codes:
            each[each >= 0] += count
            count = max(count, int(each.max(initial=-1)) + 1)
        marks.append(np.concatenate(codes))
    image, mark = np.tile(images, len(marks)), np.concatenate(marks)
    image, mark = image[mark >= 0], mark[mark >= 0]
    first = np.arange(int(images.max(initial=-1)) + 1)
    while True:
        lowest = np.full(count, len(first))
        np.minimum.at(lowest, mark, first[image])
        found = first.copy()
        np.minimum.at(found, image, lowest[mark])
        if np.array_equal(found, first):
            return first
        first = found


def image_pictures(run: RunFiles) -> pa.Table:
    """``image_id`` with ``pixels`` and ``digest``, null where unknown: a line per id and encoded image of plain views.

    The rows of one arm per shard name them all, and of image records only the digests are read.
    """
    named, seen = [_empty("image_id", "image_key")], set[int]()
    for arm in run.arms:
        for piece in run.pieces(arm):
            shards = range(piece.first, piece.last + 1)
            if not seen.issuperset(shards):
                rows = _texts(run.owner(arm), piece, ("image_id", "image_key", "view"))
                plain = rows.filter(pc.equal(rows.column("view"), ORIGINAL)).select(["image_id", "image_key"])
                named.append(plain.group_by(["image_id", "image_key"]).aggregate([]))
                seen.update(shards if plain.num_rows else ())
    pairs = pa.concat_tables(named).group_by(["image_id", "image_key"]).aggregate([])
    told = [_texts(run.owner(), piece, ("image_key", *KNOWN_BY)) for piece in run.image_pieces()]
    records = pa.concat_tables([_empty("image_key", *KNOWN_BY), *told])
    place = pc.index_in(pairs.column("image_key"), value_set=records.column("image_key").combine_chunks())
    return records.select(KNOWN_BY).take(place).add_column(0, "image_id", pairs.column("image_id"))


def _empty(*names: str) -> pa.Table:
    return pa.schema([(name, pa.string()) for name in names]).empty_table()


def _texts(owner: Owner, piece: ShardPiece, names: Sequence[str]) -> pa.Table:
    """Some columns of text, null where the file has none of that name; checksums are left to whoever reads rows."""
    parquet, mark = owner.opened(piece.file, footer_alone=True)
    schema = parquet.schema_arrow
    there = [name for name in names if name in schema.names and pa.types.is_string(schema.field(name).type)]
    if not there:
        return _empty(*names)
    tables = list(owner.batches_of((parquet, mark), piece, there))
    table = pa.concat_tables([_empty(*there), *tables])
    for name in set(names).difference(there):
        table = table.append_column(name, pa.nulls(table.num_rows, pa.string()))
    return table.select(list(names))


def with_same_images(images: Any, same: Mapping[str, str]) -> Any:
    """A column of image ids, categorical or not, by their pictures."""
    if not same:
        return images
    if not isinstance(images, pd.Categorical):
        return images.map(same).where(images.isin(list(same)), images)
    called = pd.Index([same.get(name, name) for name in images.categories], dtype=images.categories.dtype)
    names = called.unique().sort_values()
    place = np.append(names.get_indexer(called), -1).astype(images.codes.dtype)  # the last is that of a missing name
    return pd.Categorical.from_codes(place[images.codes], categories=names)


def joined_words(same: Mapping[str, str]) -> str:
    """What was joined, in a sentence; "" where every image is a picture of its own."""
    if not same:
        return ""
    name = min(same)
    images = f"{len(same)} images have" if len(same) > 1 else "1 image has"
    return f"{images} the same pixels as another (first: {name} shows what {same[name]} shows): they count as one"


def shared_images(one: RunFiles, images: Collection[str], other: RunFiles, others: Collection[str]) -> dict[str, str]:
    """Among some ``images`` of a run those that are also among ``others`` of the other, by id or by picture: its id
    there."""
    left, right = (_chosen(run, chosen) for run, chosen in ((one, images), (other, others)))
    found = {name: name for name in set(images).intersection(others)}
    for column in KNOWN_BY:
        there = right.dropna(subset=column).drop_duplicates(column).set_index(column)["image_id"]
        met = left[left[column].isin(there.index)]
        for name, mark in zip(met["image_id"], met[column], strict=True):
            found.setdefault(name, there[mark])
    return found


def _chosen(run: RunFiles, images: Collection[str]) -> pd.DataFrame:
    """The pictures of some images, which are called by the first id that has the same."""
    pictures = image_pictures(run)
    frame: pd.DataFrame = pictures.to_pandas()
    frame["image_id"] = with_same_images(frame["image_id"], _same([pictures]))
    return frame[frame["image_id"].isin(list(images))]
