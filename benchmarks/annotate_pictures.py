"""The pictures of docs/annotate.md: pages of a task over the shipped scenes, annotated by two people who are made up.

    python -m benchmarks.annotate_pictures --out docs/pictures

The first draws the known regions a little off, the second carelessly: the numbers say nothing about people.
"""

from __future__ import annotations

import argparse
import io
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.support.ui import WebDriverWait

from sightline.core.probe import Box, Probe
from sightline.probes import ProbeSet, read_probes
from sightline_annotate.agreement import agreement_report, write_agreement
from sightline_annotate.campaign import Campaign, read_judgements
from sightline_annotate.journal import FIRST, SECOND
from sightline_annotate.make import NO_SUSPICIONS, SamplingRule, create_campaign

SCENES = Path(__file__).parents[1] / "src/sightline/assets/scenes/confirmation"
QUESTIONS = 24
QUALITY = 74
PATIENCE = 120


def answers(probe: Probe, rng: random.Random, careless: float) -> dict[str, Any]:
    """The known regions, each side off by a share of the box; a careless person forgets some."""
    boxes = [
        {"region": _off(region, rng, careless), "role": role, "text": probe.answers[0] if place == 0 else ""}
        for place, (region, role) in enumerate(zip(probe.regions, probe.roles, strict=True))
        if place == 0 or rng.random() > careless
    ]
    return {"boxes": boxes, "status": "annotated"}


def _off(region: Box, rng: random.Random, share: float) -> list[float]:
    x1, y1, x2, y2 = region
    w, h = (x2 - x1) * share, (y2 - y1) * share
    moved = (x1 - rng.uniform(0, w), y1 - rng.uniform(0, h), x2 + rng.uniform(-w, w) / 2, y2 + rng.uniform(0, h))
    return [min(max(side, 0.0), 1.0) for side in moved]


def made_task(folder: Path) -> tuple[Campaign, dict[str, Probe]]:
    probes = read_probes(SCENES / "open_probes.jsonl").probes[:QUESTIONS]
    rule = SamplingRule(second=0.75)
    task = create_campaign(folder / "task", "evidence", ProbeSet(probes), SCENES / "open_images", rule, NO_SUSPICIONS)
    return task, {probe.id: probe for probe in probes}


def take(browser: webdriver.Chrome, path: Path) -> None:
    """What the window shows."""
    with Image.open(io.BytesIO(browser.get_screenshot_as_png())) as shot:
        shot.convert("RGB").save(path, quality=QUALITY, optimize=True)
    print(f"{path}: {path.stat().st_size / 1000:.0f} kB")


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("docs/pictures"))
    out = parser.parse_args(words).out
    options = Options()
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu"):
        options.add_argument(flag)
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    browser.set_window_size(1280, 860)
    with tempfile.TemporaryDirectory() as folder:
        task, probes = made_task(Path(folder))
        rng = random.Random(3)
        task.journal.append_all(
            (pass_, who, item.id, answers(probes[item.id], rng, careless))
            for pass_, who, careless in ((FIRST, "first person", 0.1), (SECOND, "second person", 0.45))
            for item in task.items
            if pass_ == FIRST or item.second
        )
        command = [sys.executable, "-m", "sightline", "annotate", str(task.path), "--as", "first person", "--no-open"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                browser.get(next(line.split()[1] for line in server.stdout if line.startswith("open ")))
                wait = WebDriverWait(browser, PATIENCE)
                wait.until(lambda page: page.execute_script("return document.body.dataset.ready"))
                browser.find_element("id", "look-back").click()
                wait.until(lambda page: page.execute_script("return !document.getElementById('work').hidden"))
                wait.until(lambda page: page.execute_script("return document.querySelectorAll('.box').length"))
                # The picture itself is drawn after the boxes are.
                ActionChains(browser).send_keys("+").pause(1).send_keys("0").pause(1).perform()
                take(browser, out / "annotate-boxes.jpg")
            finally:
                server.kill()
        readings = read_judgements(task)
        page = write_agreement(Path(folder) / "page", agreement_report(task.kind, readings), task, readings)
        browser.set_window_size(1280, 1180)
        browser.get(page.as_uri())
        take(browser, out / "annotate-agreement.jpg")
    browser.quit()


if __name__ == "__main__":
    main()
