"""A worker process of ``sightline.boxes.detection``: image names in, one line of JSON out for each."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

from sightline.boxes.detection import detect_one
from sightline.boxes.detectors import detector_named
from sightline.places import Place, place


def main(detector: str, root: Place) -> None:
    # Libraries print what they like: answers go to the real standard output, everything else to standard error.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    engine = None
    for line in sys.stdin:
        try:
            engine = engine or detector_named(detector)()
            answer = asdict(detect_one(engine, root, json.loads(line)))
        except Exception as problem:  # the parent turns it into one line for the user
            answer = {"error": str(problem).splitlines()[0] if str(problem) else type(problem).__name__}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    main(sys.argv[1], place(sys.argv[2]))
