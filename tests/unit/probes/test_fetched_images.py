"""Images of a URL: fetched once and whole, by their header where that is enough, kept within a limit, called by URL."""

import io
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from sightline.errors import SightlineError
from sightline.places.listing import StoreError, place
from sightline.places.writing import write_whole
from sightline.probes.fetched_images import HEADER_BYTES, hold_image, images_folder, make_room, resolve_image
from sightline.probes.images import AT_ONCE, image_digests, image_file, image_files, open_image, size_from_header
from tests.object_store import Store
from tests.refusals import Refused
from tests.warm_python import run_python

HOLDS = """
import json, sys
from sightline.places.listing import place
from sightline.probes.fetched_images import hold_image, make_room

with hold_image(place(sys.argv[1])) as path:
    make_room(0)
    print(json.dumps([path.exists(), path.read_bytes() == hold_image(place(sys.argv[1])).path.read_bytes()]))
make_room(0)
print(json.dumps(path.exists()))
"""
"""Makes room for everything while it holds an image, and once more when it does not."""


def noise(width: int, height: int, kind: str = "PNG", **how: Any) -> bytes:
    """An image that no format makes small."""
    packed = io.BytesIO()
    pixels = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    Image.fromarray(pixels).save(packed, format=kind, **how)
    return packed.getvalue()


def put(url: str, data: bytes) -> Any:
    target = place(url)
    write_whole(target, data)
    return target


def fetched() -> list[Path]:
    return sorted(images_folder().glob("*/*"))


def test_an_image_is_fetched_once_and_a_changed_one_anew_from_any_store(
    bucket: str, object_store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = noise(300, 200), noise(200, 300)
    put(f"{bucket}/images/a.png", first)
    object_store.counted()
    with image_file(f"{bucket}/images", "a.png") as path:
        assert path.read_bytes() == first
    assert object_store.counted() == {"HEAD": 1, "GET": 1}
    assert open_image(f"{bucket}/images", "a.png").size == (300, 200)
    assert object_store.counted() == {"HEAD": 1}, "what is there in its present version is not fetched"
    put(f"{bucket}/images/a.png", second)
    object_store.counted()
    assert open_image(f"{bucket}/images", "a.png").size == (200, 300)
    assert object_store.counted() == {"HEAD": 1, "GET": 1}
    assert len(fetched()) == 2
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path))
    for size in ((30, 20), (20, 30)):
        put("memory://versions/a.png", noise(*size))
        assert open_image("memory://versions", "a.png").size == size


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "PPM"])
def test_a_header_takes_the_first_bytes_alone(bucket: str, object_store: Store, kind: str) -> None:
    data = noise(400, 300, kind, **({"lossless": True} if kind == "WEBP" else {}))
    assert len(data) > 2 * HEADER_BYTES
    put(f"{bucket}/large", data)
    object_store.counted()
    assert size_from_header(bucket, "large") == (400, 300)
    assert object_store.counted() == {"HEAD": 1, "GET": 1}
    assert fetched() == []
    assert open_image(bucket, "large").size == (400, 300)
    object_store.counted()
    assert size_from_header(bucket, "large") == (400, 300)
    assert object_store.counted() == {"HEAD": 1}, "what is fetched already says it too"


def test_a_small_image_comes_with_its_header_and_a_late_header_is_found(bucket: str, object_store: Store) -> None:
    put(f"{bucket}/small.png", noise(30, 20))
    object_store.counted()
    assert size_from_header(bucket, "small.png") == open_image(bucket, "small.png").size == (30, 20)
    assert object_store.counted() == {"HEAD": 2, "GET": 1}
    data = noise(400, 300, "JPEG")
    comment = b"\xff\xfe" + (60_002).to_bytes(2, "big") + bytes(60_000)
    put(f"{bucket}/late.jpg", data[:2] + comment + comment + data[2:])
    assert size_from_header(bucket, "late.jpg") == (400, 300), "behind 120 KB of comments"


LOOKS = (size_from_header, open_image)


def test_what_is_no_usable_image_or_missing_is_called_by_its_url(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sightline.probes.images.MAX_PIXELS", 1000)
    packed = io.BytesIO()
    Image.fromarray(np.zeros((20, 30), np.float32)).save(packed, format="TIFF")
    for name, data, line in (
        ("bomb.png", noise(400, 300), "has 400 x 300 pixels; the limit is 1000"),
        ("bomb.webp", noise(40, 30, "WEBP"), "has 40 x 30 pixels; the limit is 1000"),
        ("text.png", b"no image at all" * 9000, "cannot be read: it is no image of a kind that is read"),
        ("float.tif", packed.getvalue(), "has pixel values of mode F, and does not say which is white"),
        ("none.png", b"", "does not exist"),
    ):
        if data:
            put(f"{bucket}/images/{name}", data)
        for look in LOOKS:
            with pytest.raises(SightlineError) as error:
                look(f"{bucket}/images", name)
            assert str(error.value).startswith(f"image {bucket}/images/{name} {line}")
            assert not isinstance(error.value, StoreError)


def test_an_image_that_is_cut_off_has_a_size_and_no_pixels(bucket: str) -> None:
    put(f"{bucket}/half.png", noise(400, 300)[:100_000])
    assert size_from_header(bucket, "half.png") == (400, 300), "its header is whole"
    with pytest.raises(SightlineError, match=rf"^image {bucket}/half.png is damaged: "):
        open_image(bucket, "half.png")


def test_a_store_that_refuses_is_something_else_than_an_image(bucket: str, object_store: Store) -> None:
    object_store.deny("HEAD")
    for look in LOOKS:
        with pytest.raises(StoreError, match=rf"^cannot read {bucket}/none.png: no permission \(Forbidden\)$"):
            look(bucket, "none.png")


def test_names_stay_below_the_root(bucket: str, object_store: Store, refused: Refused) -> None:
    for name in ("../secret.png", "/etc/passwd", "a/../../b", "C:/x", ""):
        for use in (open_image, size_from_header, resolve_image, image_file):
            refused(f"image name '{name}'", use, f"{bucket}/images", name)
    assert object_store.counted() == {}
    put(f"{bucket}/secret.png", noise(30, 20))
    refused("secret.png does not exist", open_image, f"{bucket}/images", f"{bucket}/secret.png")


def test_least_recently_used_go_first_and_those_in_use_never(bucket: str) -> None:
    files = {}
    for age, name in enumerate(["a.png", "b.png", "c.png", "d.png"]):
        put(f"{bucket}/{name}", noise(100 + age, 100))
        files[name] = resolve_image(bucket, name)
        os.utime(files[name], (age, age))
    with image_file(bucket, "a.png"):
        os.utime(files["a.png"], (0, 0))
        make_room(2.5 * files["a.png"].stat().st_size)
        assert {name for name, file in files.items() if file.exists()} == {"a.png", "d.png"}
    make_room(0)
    assert fetched() == []


def test_an_image_that_another_process_holds_stays(bucket: str) -> None:
    put(f"{bucket}/a.png", noise(100, 100))
    with hold_image(place(f"{bucket}/a.png")) as path:
        done = run_python(["-c", HOLDS, f"{bucket}/a.png"])
        assert [json.loads(line) for line in done.stdout.splitlines()] == [[True, True], True], done.stderr
        assert path.exists()


def test_the_folder_stays_within_its_limit(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGHTLINE_CACHE_GB", "0.0002")
    for number in range(12):
        put(f"{bucket}/{number}.png", noise(100 + number, 100))
        assert open_image(bucket, f"{number}.png").height == 100
        assert sum(file.stat().st_size for file in fetched()) <= 200_000
    assert 4 <= len(fetched()) < 12


def test_what_is_no_limit_and_a_folder_that_cannot_be_written_are_one_line(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(f"{bucket}/a.png", noise(30, 20))
    for text in ("much", "-1", "nan", "inf"):
        monkeypatch.setenv("SIGHTLINE_CACHE_GB", text)
        with pytest.raises(StoreError, match=rf"^SIGHTLINE_CACHE_GB={text}: write the most gigabytes"):
            open_image(bucket, "a.png")
    monkeypatch.delenv("SIGHTLINE_CACHE_GB")
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("SIGHTLINE_CACHE", str(tmp_path / "file"))
    with pytest.raises(StoreError, match=r"cannot keep image .*/a.png in .*; SIGHTLINE_CACHE moves that folder"):
        open_image(bucket, "a.png")


def test_many_are_fetched_ahead_in_order_and_let_go(bucket: str, object_store: Store, refused: Refused) -> None:
    names = [f"{number}.png" for number in range(2 * AT_ONCE + 3)]
    contents = {name: noise(60 + at, 40) for at, name in enumerate(names)}
    for name, data in contents.items():
        put(f"{bucket}/{name}", data)
    asked = [*names[:3], "none.png", *names[3:]]
    object_store.counted()
    found = {}
    for name, opened in image_files(bucket, asked):
        if name == "none.png":
            refused("none.png does not exist", opened)
            continue
        with opened() as path:
            found[name] = path.read_bytes()
    assert list(found.items()) == list(contents.items())
    counted = object_store.counted()
    assert (counted["GET"], counted["HEAD"]) == (len(names), len(asked))
    begun = image_files(bucket, names)
    next(begun)[1]().__exit__(None, None, None)
    begun.close()
    make_room(0)
    assert fetched() == [], "nothing is held that nobody uses"


def test_several_fetch_an_image_at_once_and_digests_are_those_of_a_folder(bucket: str, tmp_path: Path) -> None:
    data = noise(300, 200)
    put(f"{bucket}/a.png", data)

    def content(_: int) -> bytes:
        with image_file(bucket, "a.png") as path:
            return path.read_bytes()

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(content, range(16))) == [data] * 16
    assert len(fetched()) == 1
    names = ["a.png", "deep/b.png"]
    for name in names:
        data = noise(30, 20 + len(name))
        put(f"{bucket}/{name}", data)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(data)
    assert image_digests(bucket, names) == image_digests(tmp_path, names)
