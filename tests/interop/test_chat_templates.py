"""Chat templates, against what transformers has made of conversations."""

import itertools
import json
import sys

import numpy as np
import pytest
import tokenizers

from jaxformer.errors import ConfigError, DataError
from jaxformer.interop.chat_templates import HuggingFaceChatTemplate, load_chat_template
from jaxformer.text import Tokenizer, byte_tokenizer, with_special_tokens
from tests.interop.chats import CHATS, TEMPLATES
from tests.interop.tokenizer_folders import GOLDEN, chat, expected_chats, load

EXPECTED = json.loads(GOLDEN.read_text())


@pytest.fixture(scope="module", params=TEMPLATES)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chat")
    chat(folder, request.param)
    return request.param, folder, load(folder).target


@pytest.mark.essential
def test_conversations_have_the_ids_of_transformers(case):
    name, folder, tokenizer = case
    template = load_chat_template(folder)
    cases = itertools.product(CHATS, (True, False))
    for (messages, prompt), ids in zip(cases, EXPECTED[f"chat {name}"], strict=True):
        encoded = template.encode(tokenizer, messages, add_generation_prompt=prompt)
        assert encoded.dtype == np.int32
        assert encoded.tolist() == ids


@pytest.mark.parity
def test_golden_ids_are_those_of_transformers(case):
    name, folder, _ = case
    assert expected_chats(folder) == EXPECTED[f"chat {name}"]


BYTES = with_special_tokens(byte_tokenizer(), ["<|a|>", "中"])


def encode(template, *contents, **names):
    messages = [{"role": "user", "content": content} for content in contents]
    return HuggingFaceChatTemplate(template, names).encode(BYTES, messages).tolist()


THINKING = """{% for m in messages %}{{ m.role }}: \
{% if '</think>' in m.content %}{{ m.content.split('</think>')[-1] }}{% else %}{{ m.content }}\
{% endif %}{{ m.content | length }}<|end|>{% endfor %}"""


def test_templates_compute_on_what_the_user_wrote():
    """An added token that is not special is text to a template, and a token to the model."""
    library = tokenizers.Tokenizer.from_str(byte_tokenizer().to_json())
    library.add_special_tokens(["<|end|>"])
    library.add_tokens(["<think>", "</think>"])
    messages = [{"role": "assistant", "content": "<think>long</think>yes"}]
    ids = HuggingFaceChatTemplate(THINKING).encode(Tokenizer(library), messages)
    assert ids.tolist() == [*b"assistant: yes22", 257]
    ids = HuggingFaceChatTemplate("{{ messages[0].content }}").encode(Tokenizer(library), messages)
    assert ids.tolist() == [258, *b"long", 259, *b"yes"]


def test_special_tokens_in_parts_of_a_message_are_refused_too():
    parts = "{% for p in messages[0].content %}<|a|>{{ p.text | tojson }}{% endfor %}"
    assert encode(parts, [{"text": "é"}]) == [257, *'"é"'.encode()]
    with pytest.raises(DataError, match=r"special token '<\|a\|>', got .*x<\|a\|>é.*; remove it"):
        encode(parts, [{"text": "x<|a|>é"}])
    loop = "{% for m in messages %}中{{ m.content }}{% endfor %}"
    assert encode(loop, "x") == [258, ord("x")]
    with pytest.raises(DataError, match="the special token '中'"):
        encode(loop, "中")


def test_values_that_are_null_are_left_out():
    template = HuggingFaceChatTemplate("{{ messages[0].get('tool', 'none') }}")
    ids = template.encode(BYTES, [{"role": "user", "tool": None}])
    assert bytes(ids.tolist()) == b"none"


@pytest.mark.parametrize(
    ("template", "why"),
    [
        ("{{ raise_exception('no system') }}", "no system"),
        ("{% if %}", "cannot be used"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
    ],
)
def test_templates_that_fail_are_one_clear_error(template, why):
    with pytest.raises(DataError, match=f"the chat template cannot be used .*({why})|{why}"):
        encode(template, "x")


@pytest.mark.parametrize("messages", ["hello", []])
def test_messages_must_be_a_list(messages):
    with pytest.raises(DataError, match="messages must be a list"):
        HuggingFaceChatTemplate("x").encode(BYTES, messages)


def test_template_is_that_of_its_file_or_the_default_of_several(tmp_path):
    path = tmp_path / "tokenizer_config.json"
    assert load_chat_template(tmp_path) is None
    named = [{"name": "tool_use", "template": "b"}, {"name": "default", "template": "a"}]
    path.write_text(json.dumps({"chat_template": named, "eos_token": {"content": "</s>"}}))
    assert load_chat_template(tmp_path) == HuggingFaceChatTemplate("a", {"eos_token": "</s>"})
    path.write_text(json.dumps({"chat_template": named[:1]}))
    assert load_chat_template(tmp_path) is None
    (tmp_path / "chat_template.jinja").write_text("c")
    assert load_chat_template(tmp_path).template == "c"


def test_missing_transformers_is_one_clear_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers.utils.chat_template_utils", None)
    with pytest.raises(
        ConfigError, match=r'needs transformers, .* pip install "jaxformer\[hf\]"'
    ) as error:
        encode("x", "y")
    assert isinstance(error.value.__cause__, ImportError)
