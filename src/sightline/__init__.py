"""Sightline audits visual-token pruning in multimodal language models."""

__version__ = "0.1.0"
