"""The cost model against loads, on tiny shapes and a CPU that may do other work: ``python benchmarks/load_model.py``.

Every clock of this process counts its own processor time (one thread), so that what else runs on the machine is in no
figure. Requests per second are then those of an idle machine of this kind; they say nothing about a GPU.
"""

from __future__ import annotations

import argparse
import statistics
import time

time.perf_counter = time.process_time  # before anything takes a time

from sightline.cost.benchmarks.load import LoadRequest  # noqa: E402
from sightline.cost.card import CostCard  # noqa: E402
from sightline.cost.measuring_process import measure_here  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shapes", nargs="*", default=["tiny-qwen3-vl", "tiny-llava"])
    parser.add_argument("--tokens", nargs="*", type=int, default=[8, 32])
    parser.add_argument("--clients", nargs="*", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--questions", nargs="*", type=int, default=[1, 4])
    given = parser.parse_args()
    errors: list[float] = []
    for shape in given.shapes:
        for tokens in given.tokens:
            for questions in given.questions:
                request = LoadRequest(
                    kind="load", config=shape, arms=("full", "target:0.3", "divprune:0.3", "fastv:0.3"),
                    questions=questions, clients=tuple(given.clients), answer_tokens=tokens, anchor=False,
                )  # fmt: skip
                lines = CostCard([measure_here(request)]).lines()
                errors += [abs(line["prediction_error"]) for line in lines]
                print(f"{shape}, answers of {tokens} tokens, {questions} question(s) an image")
                for line in lines:
                    print(
                        f"  {line['arm']:13}{line['clients']:4} clients {line['requests_per_s']:8.1f}/s "
                        f"x{line['speedup']:.2f} (Amdahl {line.get('amdahl', 1):.2f}, free prefill "
                        f"{line.get('most', 1):.2f}) predicted {line['predicted_per_s']:8.1f}/s "
                        f"{line['prediction_error']:+.1%}"
                    )
    worst = sorted(errors)[round(0.9 * (len(errors) - 1))]
    middle = statistics.median(errors)
    print(f"error of the model over {len(errors)} points: median {middle:.1%}, 90th percentile {worst:.1%}")


if __name__ == "__main__":
    main()
