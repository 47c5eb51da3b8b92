"""What has to be said of an architecture so that a tiny checkpoint of it can be written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.zoo.vocabulary import Vocabulary


class Id(str):
    """A token in a configuration: becomes its id once the vocabulary is made."""


@dataclass(frozen=True)
class Species:
    """``config`` are arguments of the model's config class, without the size of the vocabulary.

    ``image_processor`` and ``processor`` are the contents of preprocessor_config.json and processor_config.json.
    """

    model_class: str
    processor_class: str
    config: dict[str, Any]
    vocabulary: Vocabulary
    image_processor: dict[str, Any]
    processor: dict[str, Any] = field(default_factory=dict)
    template: str | None = None
    model_type: str | None = None
    """The type of the configuration, where it is not that of the model's class."""
    text_config: bool = True
    """Whether the language model has a configuration of its own inside ``config``."""
