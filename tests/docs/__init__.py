"""Every command and all Python in README, CONTRIBUTING and docs is executed; ``stand_ins`` says with what."""
