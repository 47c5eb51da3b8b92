"""What has to be said of an architecture so that a tiny checkpoint of it can be written, its vocabulary included."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

# A small byte-level tokenizer with the special tokens of a published one.


WORDS = """
    yes no Yes No the word is visible in image this What does say Answer question with text Is there a an of and
    user assistant User Assistant system You are helpful model read any where on sign receipt total date number
"""
"""Words that are one token after a space, and nearly all of them without it."""


@dataclass(frozen=True)
class Vocabulary:
    """``first`` have the ids from 0 on, then come bytes and words, then ``last``, as in the published tokenizer.

    ``roles`` say which token is what: ``{"eos_token": "</s>", "image_token": "<image>"}``. ``opening`` is what the
    tokenizer itself puts before every text.
    """

    first: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    roles: dict[str, str] = field(default_factory=dict)
    opening: str | None = None
    tokenizer_class: str = "TokenizersBackend"

    @cached_property
    def tokenizer(self) -> Tokenizer:
        ids = {token: index for index, token in enumerate(self.first)}
        for symbol in sorted(pre_tokenizers.ByteLevel.alphabet()):
            ids.setdefault(symbol, len(ids))
        merges: list[tuple[str, str]] = []
        words = sorted(WORDS.split(), key=len, reverse=True)
        # What is merged first wins: were "is" before "this", that one would never become whole.
        for spelled in (*(f"Ġ{word}" for word in words), *words):
            for end in range(2, len(spelled) + 1):
                if spelled[:end] not in ids:
                    ids[spelled[:end]] = len(ids)
                    merges.append((spelled[: end - 1], spelled[end - 1]))
        made = Tokenizer(models.BPE(vocab=ids, merges=merges))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens(
            [AddedToken(token, special=True, normalized=False) for token in (*self.first, *self.last)]
        )
        if self.opening:
            made.post_processor = processors.TemplateProcessing(
                single=f"{self.opening} $A", special_tokens=[(self.opening, made.token_to_id(self.opening))]
            )
        return made

    @property
    def size(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def id(self, token: str) -> int:
        found = self.tokenizer.token_to_id(token)
        assert found is not None, f"the vocabulary lacks {token}"
        return int(found)

    def write(self, folder: Path, processor_class: str) -> None:
        self.tokenizer.save(str(folder / "tokenizer.json"))
        plain = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
        special = (*self.first, *self.last)
        settings: dict[str, Any] = {
            **dict.fromkeys(STANDARD),
            **self.roles,
            "extra_special_tokens": {role: token for role, token in self.roles.items() if role not in STANDARD},
            "added_tokens_decoder": {
                str(self.id(token)): {**plain, "content": token, "special": True} for token in special
            },
            "clean_up_tokenization_spaces": False,
            "model_max_length": 8192,
            "processor_class": processor_class,
            "tokenizer_class": self.tokenizer_class,
        }
        (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")


STANDARD = ("bos_token", "eos_token", "pad_token", "unk_token")
"""Roles that every tokenizer of transformers has an attribute for."""


# What has to be said of an architecture so that a tiny checkpoint of it can be written.


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
    adapter: dict[str, Any] | None = None
    """What adapter_config.json says of the LoRA adapter beside its weights, and in which ``folder`` it lies."""


# What is written down of architectures, as data: species.yaml, and what rules cannot know of others, exceptions.yaml.


class _Loader(yaml.SafeLoader):
    """YAML with ``!id TOKEN`` and ``!each [FORMAT, [FIRST, LAST], ...]``."""


def _id(loader: _Loader, node: yaml.ScalarNode) -> Id:
    return Id(loader.construct_scalar(node))


def _numbered(loader: _Loader, node: yaml.SequenceNode) -> list[str]:
    spelled, *ranges = loader.construct_sequence(node, deep=True)
    return [spelled.format(*numbers) for numbers in product(*(range(first, last + 1) for first, last in ranges))]


_Loader.add_constructor("!id", _id)
_Loader.add_constructor("!each", _numbered)


def load_data(name: str) -> dict[str, Any]:
    """The content of a file beside this one."""
    content: dict[str, Any] = yaml.load((Path(__file__).parent / name).read_text(encoding="utf-8"), _Loader)
    return content


def flat(tokens: Iterable[str | list[str]]) -> Iterator[str]:
    """Tokens, numbered ones among them as lists."""
    for token in tokens:
        yield from [token] if isinstance(token, str) else token


def _species(vocabulary: dict[str, Any], **said: Any) -> Species:
    tokens = {end: tuple(flat(vocabulary.get(end, ()))) for end in ("first", "last")}
    return Species(vocabulary=Vocabulary(**{**vocabulary, **tokens}), **said)


NAMED: dict[str, Species] = {name: _species(**said) for name, said in load_data("species.yaml")["species"].items()}
"""The named architectures by ``model_type``."""
