"""From a prefix to an answer: yes/no likelihood, greedy generation, answer metrics, thresholds."""
