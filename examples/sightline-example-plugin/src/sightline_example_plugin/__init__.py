"""One thing of every kind that can be added to Sightline, one file each; ``pyproject.toml`` makes them known."""
