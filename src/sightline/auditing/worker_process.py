"""One worker process of a driver: ``python -m sightline.auditing.worker_process``.

It reads its configuration as a line of standard input and works in the run folder as ``--launcher queue`` does. The end
of standard input means that the driver is gone: the process then stops, as it does on SIGTERM. One line of JSON on
standard output says how it ended.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any, NoReturn

GRACE = 10.0
"""Seconds to give back what was begun, once the driver is gone."""


class _StoppedError(BaseException):
    """No ``except Exception`` on the way may hold it up."""


def main() -> None:
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the driver decides
    request = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_driver, daemon=True).start()
    answers = sys.stdout
    sys.stdout = sys.stderr  # whatever a plug-in prints is no answer
    try:
        from sightline.auditing.workers import work  # here: it takes long, and the driver may end meanwhile

        _say(answers, **work(request))
    except _StoppedError:
        _say(answers, stopped=True)
        sys.exit(128 + signal.SIGTERM)


def _say(answers: Any, **facts: Any) -> None:
    try:
        print(json.dumps(facts), file=answers, flush=True)
    except OSError:  # nobody listens any more
        os._exit(1)


def _stop(number: int, frame: Any) -> NoReturn:
    raise _StoppedError


def _end_with_driver() -> None:
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os._exit(1)


if __name__ == "__main__":
    main()
