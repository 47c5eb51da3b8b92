import shutil
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sightline import SightlineError, load_run
from sightline.places.listing import StoreError, place, read_whole
from sightline.store.folder import RunFolder, part_folders
from sightline.store.manifest import Failure
from sightline.store.verify import compact_run, verify_folder
from tests.object_store import Store
from tests.refusals import Refused
from tests.unit.store.test_folder import MANIFEST
from tests.warm_python import run_python


@pytest.fixture
def url() -> str:
    return f"memory://{uuid4().hex}/run"


def opened(url: str, shards: int = 1) -> RunFolder:
    """A folder that holds the rows of one arm and shard, which are none."""
    folder = RunFolder(url)
    folder.open({**MANIFEST, "shards": shards}, ["full"], b"{}\n")
    folder.write_rows("full", 0, [], ())
    return folder


def upload(source: Path, url: str) -> None:
    target: Any = place(url)
    target.fs.put(f"{source}/", target.path, recursive=True)


def test_a_recorded_run_is_read_and_gone_on_with(data: Path, tmp_path: Path, url: str) -> None:
    local = Path(shutil.copytree(data / "recorded_run", tmp_path / "run"))
    upload(local, url)
    assert load_run(url).rows.equals(load_run(local).rows)
    assert load_run(url).images.equals(load_run(local).images)
    folders = [RunFolder(local), RunFolder(url)]
    for folder in folders:
        old = folder.manifest()
        again = {name: value for name, value in old.items() if name not in ("arms", "schema")}
        folder.open(again, old["arms"], b"{}\n")
    names = [[file.path.name for file in folder.files_of_images()] for folder in folders]
    assert names[0] == names[1] != []
    assert folders[0].manifest() == folders[1].manifest()


def test_a_run_is_created_resumed_amended_and_not_compacted(url: str, tmp_path: Path, refused: Refused) -> None:
    folder = RunFolder(url)
    assert not folder.exists
    assert folder.open(MANIFEST, ["full"], b"{}\n") == ["full"]
    assert folder.exists
    assert RunFolder(url).open(MANIFEST, ["target:0.3"], b"{}\n") == ["full", "target:0.3"]
    refused("this command has bfloat16", RunFolder(url).open, {**MANIFEST, "dtype": "bfloat16"}, ["full"], b"")
    for path, out in ((place(url), None), (tmp_path, place(url))):
        refused("cannot compact memory://BUCKET/run", compact_run, path, out)
    other = place(f"{url}-of-somebody-else")
    (other / "probes.jsonl").write_bytes(b"theirs")
    refused("is not empty and is not a run folder", RunFolder(str(other)).open, MANIFEST, ["full"], b"mine")
    assert read_whole(other / "probes.jsonl") == b"theirs"


@pytest.mark.parametrize(("writes", "file"), [(0, "run.json"), (1, "probes.jsonl")])
def test_a_run_that_was_never_finished_opening_goes_on(
    bucket: str, object_store: Store, writes: int, file: str, tmp_path: Path, refused: Refused
) -> None:
    folder = RunFolder(f"{bucket}/run")
    object_store.deny("PUT", after=writes)
    refused(f"cannot write s3://BUCKET/run/{file}", folder.open, MANIFEST, ["full"], b"{}\n")
    object_store.relent()
    assert RunFolder(f"{bucket}/run").open(MANIFEST, ["full"], b"{}\n") == ["full"]
    assert read_whole(folder.path / "probes.jsonl") == b"{}\n"


def test_what_was_computed_beside_a_mended_image_is_removed(url: str) -> None:
    folder = RunFolder(url)
    folder.open(MANIFEST, ["full", "half"], b"{}\n")
    for shard in (0, 1):
        for arm in ("full", "half"):
            folder.write_rows(arm, shard, [], ())
        folder.write_images(shard, "original", [])
    folder.notes.write_bad_images(1, {"a.png": "it is damaged"})
    folder.forget_shards_of(["a.png"])
    for known in (folder, RunFolder(url)):
        assert [known.has_rows(arm, shard) for arm in ("full", "half") for shard in (0, 1)] == [True, False] * 2
        assert len(known.files_of_images()) == 1
        assert known.finished_shards("full") == {0}


def test_a_store_that_fails_is_no_reason_to_delete_and_no_finding(
    bucket: str, object_store: Store, refused: Refused
) -> None:
    refused("it has no run.json", load_run, f"{bucket}/none")
    refused("the bucket does not exist", load_run, "s3://no-such-bucket/none")
    folder = opened(f"{bucket}/run")
    folder.write_images(0, "original", [])
    run = load_run(f"{bucket}/run")
    object_store.deny("GET", containing=".parquet")
    for read in (lambda: run.rows, lambda: folder.image_digests(0)):
        with pytest.raises(StoreError, match=rf"^cannot read {bucket}/run/.*: no permission \(Access Denied\)$"):
            read()
    folder.open({**MANIFEST, "shards": 1}, ["full"], b"{}\n")
    for name in ("run.json", "probes.jsonl"):
        object_store.deny("GET", containing=name)
        with pytest.raises(StoreError, match=rf"^cannot read {bucket}/run/{name}: no permission"):
            verify_folder(folder.path)


def test_fsspecs_own_configuration_is_heeded(bucket: str, object_store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (place(bucket) / "a.txt").write_bytes(b"found")
    settings = object_store.environment
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("FSSPEC_S3_ENDPOINT_URL", settings["AWS_ENDPOINT_URL"])
    monkeypatch.setenv("FSSPEC_S3_KEY", settings["AWS_ACCESS_KEY_ID"])
    monkeypatch.setenv("FSSPEC_S3_SECRET", settings["AWS_SECRET_ACCESS_KEY"])
    reads = "import sys; from sightline.places.listing import place, read_whole as r; print(r(place(sys.argv[1])))"
    done = run_python(["-c", reads, f"{bucket}/a.txt"])
    assert done.stdout == "b'found'\n", done.stderr


def test_a_damaged_object_is_named_and_what_verify_sets_aside_is_computed_again(bucket: str) -> None:
    url = f"{bucket}/run"
    folder = opened(url)
    file: Any = folder.rows_file("full", 0)
    whole = read_whole(file)
    middle = len(whole) // 2
    file.write_bytes(whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :])
    said = rf"^{file} is damaged \(.*\); set it aside with `sightline verify {url} --rep"
    with pytest.raises(SightlineError, match=said):
        _ = load_run(url).rows
    (problem,) = [found for found in verify_folder(folder.path).problems if found.file is not None]
    assert problem.words.startswith(f"{file} is damaged (")
    assert str(problem.set_aside()) == f"{file}.damaged"
    again = RunFolder(url)
    assert not again.has_rows("full", 0)
    assert again.finished_shards("full") == set()
    assert problem.set_aside() is None, "it is gone already"


def test_parts_in_a_store_are_one_run_whose_rows_are_scanned(data: Path, url: str) -> None:
    """By the URL of the folder above them, and one by one."""
    for part in ("first", "second"):
        upload(data / "recorded_run", f"{url}/{part}")
    folders = part_folders(url)
    assert [str(folder.path) for folder in folders] == [f"{url}/first", f"{url}/second"]
    one = load_run(data / "recorded_run")
    assert load_run(url).rows.equals(one.rows)
    assert load_run([f"{url}/first", place(f"{url}/second")]).rows.equals(one.rows)
    upload(data / "recorded_run", url)
    local, remote = load_run(data / "recorded_run"), load_run(url)
    assert list(remote.scan(["probe_id", "ecr"])) == list(local.scan(["probe_id", "ecr"]))


def test_what_another_writes_is_seen_after_a_refresh(bucket: str, object_store: Store) -> None:
    mine, theirs = RunFolder(f"{bucket}/run"), RunFolder(f"{bucket}/run")
    mine.open({**MANIFEST, "shards": 2}, ["full"], b"{}\n")
    theirs.write_rows("full", 1, [], ())
    theirs.notes.add_failure(Failure("00000", ("full",), "it failed", lost=False))
    assert mine.finished_shards("full") == set()
    mine.files.refresh()
    object_store.counted()
    assert mine.finished_shards("full") == {1}
    assert mine.has_rows("full", 1)
    assert mine.notes.names("failed") == ["failed.00000.1"]
    assert object_store.counted() == {"LIST": 1}
