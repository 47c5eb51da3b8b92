"""The training forward and the stock model are one function, in every form."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import CLIPImageProcessorPil, Qwen2VLImageProcessorPil

from lab.reader import vocabulary
from lab.reader.forms import FORMS
from lab.reader.processor import save_processor

IMAGE_PROCESSORS = {"qwen3_vl": Qwen2VLImageProcessorPil, "llava": CLIPImageProcessorPil}


@pytest.fixture(scope="module", params=FORMS)
def form(request):
    return FORMS[request.param]


@pytest.fixture(scope="module")
def model(form):
    model = form.model("toy", seed=3).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def image():
    return np.random.default_rng(0).integers(0, 256, (448, 448, 3), dtype=np.uint8)


def pixels(form, folder, image):
    save_processor(folder, form)
    processor = IMAGE_PROCESSORS[form.name].from_pretrained(folder)
    return processor(images=Image.fromarray(image), return_tensors="pt")


def stock_logits(form, model, folder, image, text, prefix, keep=None):
    """Logits after the shared part, from the stock forward; dropped visual tokens are masked for every later token."""
    features = pixels(form, folder, image)
    ids = torch.tensor([[*prefix, *[vocabulary.IMAGE] * form.tokens, vocabulary.VISION_END, *text]])
    attend = torch.ones_like(ids)
    if keep is not None:
        attend[0, len(prefix) : len(prefix) + form.tokens] = keep.long()
    if form.name == "qwen3_vl":
        kinds = (ids == vocabulary.IMAGE).int()
        grid = {"mm_token_type_ids": kinds, "image_grid_thw": features["image_grid_thw"]}
        positions, _ = model.model.get_rope_index(ids, **grid)
    else:
        grid, positions = {}, torch.arange(ids.shape[1])[None]
    with torch.no_grad():
        output = model(
            input_ids=ids,
            pixel_values=features["pixel_values"],
            position_ids=positions,
            attention_mask=attend,
            **grid,
        )
    return output.logits[0, -len(text) :]


def packed_logits(form, model, image, texts, keep, in_words=False):
    forward = form.forward(model, "cpu")
    ids = torch.tensor([[token for text in texts for token in text]])
    segments = torch.tensor([[number for number, text in enumerate(texts) for _ in text]])
    positions = torch.tensor([[place for text in texts for place in range(len(text))]])
    with torch.no_grad():
        seen = forward.see(torch.from_numpy(image).permute(2, 0, 1)[None].float())
        states = forward.read(seen, ids, positions, segments, keep[None], torch.tensor([in_words]))
        return forward.logits(states)[0].split([len(text) for text in texts])


@pytest.mark.parametrize("pruned", [False, True])
def test_packed_questions_equal_stock_forward(form, model, image, tmp_path, pruned):
    keep = torch.ones(form.tokens, dtype=torch.bool)
    if pruned:
        keep[torch.randperm(form.tokens, generator=torch.Generator().manual_seed(1))[59:]] = False
    texts = [
        [*vocabulary.question_ids(word), answer, vocabulary.IM_END]
        for word, answer in (("Total", vocabulary.YES), ("$12.50", vocabulary.NO))
    ]
    found = packed_logits(form, model, image, texts, keep)
    for text, logits in zip(texts, found, strict=True):
        expected = stock_logits(form, model, tmp_path, image, text, form.prefix, keep if pruned else None)
        torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    assert (found[0][-3:] - found[1][-3:]).abs().max() > 1e-3


def test_open_questions_stand_behind_their_own_prefix(form, model, image, tmp_path):
    keep = torch.ones(form.tokens, dtype=torch.bool)
    text = [
        *vocabulary.open_question_ids('What is the text right of "Total"?'),
        *vocabulary.spell("12"),
        vocabulary.IM_END,
    ]
    expected = stock_logits(form, model, tmp_path, image, text, form.open_prefix)
    (found,) = packed_logits(form, model, image, [text], keep, in_words=True)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=0)
    (other,) = packed_logits(form, model, image, [text], keep)
    assert ((found - other).abs().max() > 1e-3) == (form.prefix != form.open_prefix)


def test_the_class_token_is_the_one_that_the_stock_tower_pools(form, model, image, tmp_path):
    seen = form.forward(model, "cpu").see(torch.from_numpy(image).permute(2, 0, 1)[None].float())
    assert (seen.page is not None) == form.has_page
    if seen.page is not None:
        stock = model.model.vision_tower(pixels(form, tmp_path, image)["pixel_values"])
        torch.testing.assert_close(seen.page, stock.pooler_output, atol=1e-4, rtol=0)
