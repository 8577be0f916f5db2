"""Chat templates, against what transformers has made of conversations."""

import itertools
import json
import sys

import numpy as np
import pytest

from jaxformer.errors import CheckpointError, ConfigError, DataError
from jaxformer.interop.chat import rendering
from jaxformer.interop.chat.rendering import render
from jaxformer.interop.chat.templates import HuggingFaceChatTemplate, load_chat_template
from jaxformer.interop.tokenizers.loading import load_tokenizers
from jaxformer.text import byte_tokenizer, with_special_tokens
from tests.interop.chats import ANSWER, CHATS, SYSTEM, TEMPLATES, USER
from tests.interop.tokenizer_folders import GOLDEN, chat, expected_chats

EXPECTED = json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module", params=TEMPLATES)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    chat(folder, request.param)
    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    return request.param, folder, load_tokenizers(folder, model_type).target


@pytest.mark.essential
def test_conversations_have_the_ids_of_transformers(case):
    name, folder, tokenizer = case
    template = load_chat_template(folder)
    cases = itertools.product(CHATS, (True, False))
    for (messages, prompt), ids in zip(cases, EXPECTED[f"chat {name}"], strict=True):
        found = template.encode(tokenizer, messages, add_generation_prompt=prompt)
        assert found.dtype == np.int32
        assert found.tolist() == ids


@pytest.mark.parity
def test_golden_ids_are_those_of_transformers(case):
    name, folder, _ = case
    assert expected_chats(folder) == EXPECTED[f"chat {name}"]


def test_messages_cannot_smuggle_special_tokens(case):
    name, folder, tokenizer = case
    template = load_chat_template(folder)
    harmless = template.encode(tokenizer, [USER, ANSWER, USER])
    names = [*TEMPLATES[name][1], *TEMPLATES[name][2].values(), "<s>", "</s>", "<|endoftext|>"]
    spelled = "".join(names) + "".join(f"{each}x" for each in names)
    spelled += "<|im_<|im_end|>end|>" + "<<s>s>" + "\U000f0000".join(names)
    attack = [USER, {"role": "assistant", "content": spelled}, USER]
    found = template.encode(tokenizer, attack)
    special = sorted(tokenizer.special)
    counts = [np.isin(ids, special) & (ids != tokenizer.unknown) for ids in (harmless, found)]
    unknown = tokenizer.special_id("<unk>")
    assert len(found) > len(harmless)
    assert [
        sum(ids[mask] != unknown) for ids, mask in zip((harmless, found), counts, strict=True)
    ] == [sum(harmless[counts[0]] != unknown)] * 2


def test_text_of_a_message_is_there_unchanged(case):
    name, folder, tokenizer = case
    text = "a <|im_start|> b </s> c"
    ids = load_chat_template(folder).encode(tokenizer, [{"role": "user", "content": text}])
    assert text in tokenizer.decode(ids)


BYTES = with_special_tokens(byte_tokenizer(), ["<|a|>", "中"])


def encode(template, *contents, **names):
    messages = [{"role": "user", "content": content} for content in contents]
    return HuggingFaceChatTemplate(template, names).encode(BYTES, messages).tolist()


def test_added_tokens_of_the_template_that_are_not_special_are_guarded_as_well(tmp_path):
    chat(tmp_path, "llama-2")
    tokenizer = load_tokenizers(tmp_path, "llama").target
    messages = [{"role": "user", "content": "a<|im_end|>b"}]
    guarded = HuggingFaceChatTemplate("{{ messages[0].content }}<|im_end|>")
    assert guarded.encode(tokenizer, messages).tolist().count(500) == 1
    assert "a<|im_end|>b" in tokenizer.decode(guarded.encode(tokenizer, messages))
    # To a template that does not have it, it is an ordinary word.
    plain = HuggingFaceChatTemplate("{{ messages[0].content }}")
    assert plain.encode(tokenizer, messages).tolist() == tokenizer.encode("a<|im_end|>b").tolist()


def test_special_tokens_of_one_letter_cannot_be_smuggled_either():
    loop = "{% for m in messages %}中{{ m.content }}{% endfor %}"
    assert encode(loop, "x") == [258, ord("x")]
    assert encode(loop, "中") == [258, *"中".encode()]


def test_parts_of_a_message_are_guarded_and_conditions_read_the_text():
    parts = "{% for p in messages[0].content %}<|a|>{{ p.text | tojson }}{% endfor %}"
    assert encode(parts, [{"text": "<|a|>é"}]) == [257, *'"<|a|>é"'.encode()]
    assert encode("{% if 'no' in messages[0].content %}<|a|>{% endif %}", "no") == [257]
    assert encode("{{ messages[0].content | length }}", "four") == [ord("4")]


def test_values_that_are_null_are_left_out():
    template = HuggingFaceChatTemplate("{{ messages[0].get('tool', 'none') }}")
    ids = template.encode(BYTES, [{"role": "user", "tool": None}])
    assert bytes(ids.tolist()) == b"none"


def test_end_of_text_has_the_name_that_the_template_gives_it():
    assert encode("{{ eos_token }}x</s>", "", eos_token="</s>") == [256, ord("x"), 256]


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('no system') }}", "no system"),
        ("{% if %}", "cannot be used"),
        ("{{ messages[0].content + 1 }}", "can only concatenate|concatenate str"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ 1 / 0 }}", "division"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
    ],
)
def test_templates_that_fail_are_one_clear_error(template, why):
    with pytest.raises(DataError, match=f"the chat template cannot be used .*({why})|{why}"):
        encode(template, "x")


LOOPS = "{% for i in range(99999) %}" * 4 + "{% endfor %}" * 4


@pytest.mark.parametrize(
    ("template", "why"),
    [
        (LOOPS, "it takes more than 1 seconds"),
        ("{{ ('x' * 10**9 * 2) | length }}", "it needs more than 1,073,741,824 bytes of memory"),
        ("{{ 'x' * 10**7 }}{{ 'x' * 10**7 }}", "it writes more than 16,777,216 characters"),
    ],
)
def test_template_that_takes_too_much_is_ended(monkeypatch, template, why):
    if template == LOOPS:
        monkeypatch.setitem(rendering._LIMITS, "seconds", 1)
    with pytest.raises(DataError, match=f"the chat template cannot be used .* {why}"):
        encode(template, "x")


@pytest.mark.parametrize(
    ("messages", "why"),
    [
        ("hello", "must be a non-empty list"),
        ([], "must be a non-empty list"),
        (["hello"], 'a mapping with a "role"'),
        ([{"content": "x"}], 'a mapping with a "role"'),
        ([{"role": "user", "content": object()}], "must be text, numbers, lists"),
    ],
)
def test_messages_of_another_shape_are_refused(messages, why):
    with pytest.raises(DataError, match=why):
        HuggingFaceChatTemplate("x").encode(BYTES, messages)


def test_template_is_that_of_its_file_or_the_default_of_several(tmp_path):
    path = tmp_path / "tokenizer_config.json"
    assert load_chat_template(tmp_path) is None
    named = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]
    path.write_text(json.dumps({"chat_template": named, "eos_token": {"content": "</s>"}}))
    assert load_chat_template(tmp_path) == HuggingFaceChatTemplate("a", {"eos_token": "</s>"})
    path.write_text(json.dumps({"chat_template": named[:1]}))
    with pytest.raises(CheckpointError, match=r"named 'default', got \['tool_use'\]"):
        load_chat_template(tmp_path)
    path.write_text(json.dumps({"chat_template": 5}))
    with pytest.raises(CheckpointError, match="must be text, or a list of named templates, got"):
        load_chat_template(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("c")
    assert load_chat_template(tmp_path).template == "c"
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(CheckpointError, match="chat_template.jinja is damaged: it is not UTF-8"):
        load_chat_template(tmp_path)


def test_time_is_given_to_templates():
    assert int(render("{{ strftime_now('%Y') }}")) > 2000


def test_missing_jinja2_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r'needs jinja2, .* pip install "jaxformer\[hf\]"'):
        encode("x", "y")


def test_roles_that_a_template_refuses_are_an_error(case):
    name, folder, tokenizer = case
    if name == "gemma":
        with pytest.raises(DataError, match="System role not supported"):
            load_chat_template(folder).encode(tokenizer, [SYSTEM, USER])
    if name == "llama-2":
        with pytest.raises(DataError, match="Roles must alternate"):
            load_chat_template(folder).encode(tokenizer, [USER, USER])
