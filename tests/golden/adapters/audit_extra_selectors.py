from tests.golden.adapters.audit_rules import run

__all__ = ["run"]
