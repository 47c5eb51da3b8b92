"""Tokenizer, chat template and image processor of the reader, as ordinary files beside the weights."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from lab.reader import vocabulary
from lab.reader.forms import Form

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{{- '<|im_start|>' + message['role'] + '\\n' -}}"
    "{%- if message['content'] is string -%}{{- message['content'] -}}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part['type'] == 'image' -%}{{- '<|vision_start|><|image_pad|><|vision_end|>' -}}"
    "{%- elif part['type'] == 'text' -%}{{- part['text'] -}}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}"
    "{{- '<|im_end|>\\n' -}}"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"
)


def build_tokenizer() -> PreTrainedTokenizerFast:
    """A byte-level BPE without merges, plus the fixed phrases as added tokens."""
    fixed = (*vocabulary.SPECIAL, *vocabulary.PHRASES, *vocabulary.ANSWERS)
    ids = {token: index for index, token in enumerate(fixed)}
    ids |= {_byte_symbol(byte): vocabulary.FIRST_BYTE + byte for byte in range(256)}
    ids |= {phrase: vocabulary.FIRST_OPEN + number for number, phrase in enumerate(vocabulary.OPEN_PHRASES)}
    tokenizer = Tokenizer(models.BPE(vocab=ids, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in vocabulary.SPECIAL])
    phrases = (*vocabulary.PHRASES, *vocabulary.OPEN_PHRASES)
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in phrases])
    # single_word: an answer is a token of its own only where no letter touches it, as after the assistant's line break.
    tokenizer.add_tokens([AddedToken(token, normalized=False, single_word=True) for token in vocabulary.ANSWERS])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>", *vocabulary.SPECIAL[3:]],
        clean_up_tokenization_spaces=False,
        model_max_length=8192,
        chat_template=CHAT_TEMPLATE,
    )


def save_processor(folder: Path, form: Form) -> None:
    """Writes tokenizer, chat template and the form's processor files into a checkpoint folder."""
    build_tokenizer().save_pretrained(folder)
    for name, content in form.processor_files.items():
        (folder / f"{name}.json").write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _byte_symbol(byte: int) -> str:
    """The printable character that byte-level tokenizers write for a byte: itself, or the next free one above 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    if byte in printable:
        return chr(byte)
    return chr(256 + [other for other in range(256) if other not in printable].index(byte))
