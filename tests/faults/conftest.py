from __future__ import annotations

from tests.integration.conftest import config, mini_probes

__all__ = ["config", "mini_probes"]
