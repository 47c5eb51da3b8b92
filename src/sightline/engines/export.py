"""From a checkpoint to OpenVINO's format: the commands, and an environment of its own to run them in.

The exporter needs another version of transformers than Sightline does, so it gets its own environment. It also asks for
torchvision without needing it for an export, and the published one may not fit the installed torch: all that it really
needs is installed first, then the exporter alone.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from sightline.errors import SightlineError

EXPORTER = "optimum-intel==2.2.0"
PACKAGES = (
    "huggingface-hub==1.21.0",
    "nncf==3.4.0",
    "openvino==2026.4.1",
    "openvino-tokenizers==2026.4.1.0",
    "optimum==2.3.0",
    "pillow",
    "requests",
    "setuptools",
    "torch==2.13.0",
    "transformers==5.0.0",
)
"""Versions that were seen to export Qwen3-VL together; transformers 5.1 and later are refused for it."""


def steps(checkpoint: str, folder: Path, environment: Path, weights: str | None = None) -> list[list[str]]:
    """Commands in order; those that make the environment only where there is none with an exporter."""
    scripts = environment / ("Scripts" if os.name == "nt" else "bin")
    exporter = scripts / "optimum-cli"
    install = [str(scripts / "python"), "-m", "pip", "install"]
    made = [
        [sys.executable, "-m", "venv", str(environment)],
        [*install, *PACKAGES],
        [*install, "--no-deps", EXPORTER],
    ]
    export = [str(exporter), "export", "openvino", "--model", checkpoint, "--task", "image-text-to-text"]
    if weights is not None:
        export += ["--weight-format", weights]
    return [*([] if exporter.with_suffix(".exe").exists() or exporter.exists() else made), [*export, str(folder)]]


def export(checkpoint: str, folder: Path, environment: Path, weights: str | None = None) -> None:
    """Runs them, their output shown as it comes; the folder must not exist or be empty."""
    if folder.is_dir() and any(folder.iterdir()):
        raise SightlineError(f"{folder} is not empty; name a new folder for the export")
    for step in steps(checkpoint, folder, environment, weights):
        try:
            done = subprocess.run(step, check=False)
        except OSError as error:
            raise SightlineError(f"cannot run {shlex.join(step)}: {error.strerror or error}") from None
        if done.returncode:
            raise SightlineError(f"this command failed with exit code {done.returncode}: {shlex.join(step)}")
