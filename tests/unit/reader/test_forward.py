"""The training forward and the stock model are one function."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import Qwen2VLImageProcessorPil

from sightline.reader import vocabulary
from sightline.reader.architecture import build_model
from sightline.reader.forward import QUESTION_START, SHARED, TOKENS, BatchedForward, attention_mask
from sightline.reader.processor import save_processor


@pytest.fixture(scope="module")
def model():
    model = build_model("toy", seed=3).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 256, (448, 448, 3), dtype=np.uint8)


def stock_logits(model, folder, image, ids, keep=None):
    """Logits after the shared part, from the stock forward; dropped visual tokens are masked for every later token."""
    save_processor(folder)
    features = Qwen2VLImageProcessorPil.from_pretrained(folder)(images=Image.fromarray(image), return_tensors="pt")
    ids = torch.tensor([ids])
    attend = torch.ones_like(ids)
    if keep is not None:
        start = len(vocabulary.PREFIX)
        attend[0, start : start + TOKENS] = keep.long()
    kinds = (ids == vocabulary.IMAGE).int()
    positions, _ = model.model.get_rope_index(ids, mm_token_type_ids=kinds, image_grid_thw=features["image_grid_thw"])
    with torch.no_grad():
        output = model(
            input_ids=ids,
            pixel_values=features["pixel_values"],
            image_grid_thw=features["image_grid_thw"],
            position_ids=positions,
            attention_mask=attend,
            mm_token_type_ids=kinds,
        )
    return output.logits[0, SHARED:]


def packed_logits(model, image, texts, keep, prefix=vocabulary.PREFIX):
    forward = BatchedForward(model, "cpu")
    ids = torch.tensor([[token for text in texts for token in text]])
    segments = torch.tensor([[number for number, text in enumerate(texts) for _ in text]])
    positions = torch.tensor([[place for text in texts for place in range(len(text))]]) + QUESTION_START
    with torch.no_grad():
        _, tokens, deep = forward.see(torch.from_numpy(image).permute(2, 0, 1)[None].float())
        mask = attention_mask(segments, keep[None])
        states = forward.read(tokens, deep, ids, positions, mask, torch.tensor([prefix]))
        return forward.logits(states)[0].split([len(text) for text in texts])


@pytest.mark.parametrize("pruned", [False, True])
def test_packed_questions_equal_stock_forward(model, image, tmp_path, pruned):
    keep = torch.ones(TOKENS, dtype=torch.bool)
    if pruned:
        keep[torch.randperm(TOKENS, generator=torch.Generator().manual_seed(1))[59:]] = False
    texts = [
        [*vocabulary.question_ids(word), answer, vocabulary.IM_END]
        for word, answer in (("Total", vocabulary.YES), ("$12.50", vocabulary.NO))
    ]
    found = packed_logits(model, image, texts, keep)
    for text, logits in zip(texts, found, strict=True):
        prompt = [*vocabulary.PREFIX, *[vocabulary.IMAGE] * TOKENS, vocabulary.VISION_END, *text]
        expected = stock_logits(model, tmp_path, image, prompt, keep if pruned else None)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert (found[0][-3:] - found[1][-3:]).abs().max() > 1e-3


def test_open_questions_stand_behind_a_system_message_of_their_own(model, image, tmp_path):
    keep = torch.ones(TOKENS, dtype=torch.bool)
    text = [
        *vocabulary.open_question_ids('What is the text right of "Total"?'),
        *vocabulary.spell("12"),
        vocabulary.IM_END,
    ]
    prompt = [*vocabulary.OPEN_PREFIX, *[vocabulary.IMAGE] * TOKENS, vocabulary.VISION_END, *text]
    expected = stock_logits(model, tmp_path, image, prompt)
    (found,) = packed_logits(model, image, [text], keep, vocabulary.OPEN_PREFIX)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    (other,) = packed_logits(model, image, [text], keep)
    assert (found - other).abs().max() > 1e-3
