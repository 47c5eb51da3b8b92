"""The training forward and the stock model are one function, in every form."""

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoTokenizer, CLIPImageProcessorPil, Qwen2VLImageProcessorPil

from lab.reader import vocabulary
from lab.reader.forms import FORMS, QWEN3_VL
from lab.reader.processor import save_processor
from lab.scenes.open_questions import TEMPLATES
from sightline.backbones.llava import Llava
from sightline.backbones.prompting import OPEN_INSTRUCTION
from sightline.backbones.qwen3_vl import Qwen3VL
from sightline.checks.demo import asset

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
    shown = {"pixel_values": features["pixel_values"], **grid}
    with torch.no_grad():
        output = model(input_ids=ids, position_ids=positions, attention_mask=attend, **shown)
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
    question = vocabulary.open_question_ids('What is the text right of "Total"?')
    text = [*question, *vocabulary.spell("12"), vocabulary.IM_END]
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


TARGETS = [
    "Total", "yes", "no", "text", "image", "user", "assistant", "$1,234.56", "a@b.io", "Café", "exact", '5"', "Answer",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reader")
    save_processor(folder, QWEN3_VL)
    return AutoTokenizer.from_pretrained(folder)


def messages(target):
    question = f'Does the image contain the exact text "{target}"? Answer yes or no.'
    user = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": question}]}
    return [{"role": "system", "content": "You are a helpful assistant."}, user]


def asked(tokenizer, turns, answer=None):
    """The ids of a conversation as the template writes it, up to the answer or with one; and its text."""
    said = [] if answer is None else [{"role": "assistant", "content": answer}]
    text = tokenizer.apply_chat_template([*turns, *said], add_generation_prompt=answer is None, tokenize=False)
    return tokenizer.encode(text, add_special_tokens=False), text


def test_prompts_are_fixed_tokens_around_the_spelled_target_and_end_with_answer_end_and_newline(tokenizer):
    for target in TARGETS:
        ids, prompt = asked(tokenizer, messages(target))
        around = [*vocabulary.PREFIX, vocabulary.IMAGE, vocabulary.VISION_END]
        assert ids == [*around, *vocabulary.question_ids(target)]
        assert tokenizer.encode(target, add_special_tokens=False) == vocabulary.spell(target)
        assert tokenizer.decode(ids) == prompt
        for answer, token in ((" yes", vocabulary.YES), (" no", vocabulary.NO)):
            answered, full = asked(tokenizer, messages(target), answer)
            assert full.startswith(prompt)
            assert answered == [*ids, token, vocabulary.IM_END, vocabulary.NEWLINE]


def test_open_prompts_and_answers_are_what_training_packs(tokenizer):
    for template in TEMPLATES.values():
        question = template.format("TOTAL:", "$1,234.56")
        content = [{"type": "image"}, {"type": "text", "text": question + vocabulary.OPEN_INSTRUCTION}]
        turns = [{"role": "system", "content": vocabulary.OPEN_SYSTEM}, {"role": "user", "content": content}]
        packed = vocabulary.open_question_ids(question)
        prompt = [*vocabulary.OPEN_PREFIX, vocabulary.IMAGE, vocabulary.VISION_END, *packed]
        assert asked(tokenizer, turns)[0] == prompt
        answer = [*vocabulary.spell("no-1.50"), vocabulary.IM_END, vocabulary.NEWLINE]
        assert asked(tokenizer, turns, "no-1.50")[0] == [*prompt, *answer]
        assert tokenizer.decode(vocabulary.spell("no-1.50")) == "no-1.50"
        spelled = question.replace("TOTAL:", "").replace("$1,234.56", "").replace("total", "")
        assert len(vocabulary.open_ids(spelled)) <= 7, "a fixed part of the question is spelled"


def test_the_vocabulary_has_the_phrases_of_the_package_and_leaves_old_ids_alone(tokenizer):
    assert Qwen3VL.open_system == vocabulary.OPEN_SYSTEM
    assert f"\n{OPEN_INSTRUCTION}" == vocabulary.OPEN_INSTRUCTION
    assert (vocabulary.SYSTEM_TEXT, vocabulary.HEAD, vocabulary.TAIL) == (11, 12, 13)
    assert (vocabulary.YES, vocabulary.NO) == (14, 15)
    assert (vocabulary.FIRST_BYTE, vocabulary.FIRST_OPEN) == (16, 272)
    shipped = AutoTokenizer.from_pretrained(asset("reader"))
    for token, number in shipped.get_vocab().items():
        assert tokenizer.convert_tokens_to_ids(token) == number, token
    assert len(tokenizer) == vocabulary.VOCABULARY_SIZE
    assert tokenizer.convert_tokens_to_ids("<|image_pad|>") == vocabulary.IMAGE
    assert tokenizer.eos_token_id == vocabulary.IM_END


@pytest.mark.parametrize(("form", "backbone"), [("qwen3_vl", Qwen3VL), ("llava", Llava)])
def test_what_stands_before_the_visual_tokens_is_what_the_backbone_asks_with(tokenizer, form, backbone):
    content = [{"type": "image"}, {"type": "text", "text": "What is the total?"}]
    for system, prefix in (
        (backbone.system, FORMS[form].prefix),
        (backbone.open_system or backbone.system, FORMS[form].open_prefix),
    ):
        turn = [{"role": "system", "content": system}] if system is not None else []
        ids, _ = asked(tokenizer, [*turn, {"role": "user", "content": content}])
        assert tuple(ids[: ids.index(vocabulary.IMAGE)]) == prefix
