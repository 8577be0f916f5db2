"""Chat templates of the shapes that published models have, and the conversations for them."""

CHATML = """{%- for message in messages -%}
    {%- if loop.first and message['role'] != 'system' -%}
        {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' -}}
    {%- endif -%}
    {{- '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}
"""
LLAMA_2 = """{% if messages[0]['role'] == 'system' %}{% set turns = messages[1:] %}
{% set system = '<<SYS>>\\n' + messages[0]['content'] + '\\n<</SYS>>\\n\\n' %}
{% else %}{% set turns = messages %}{% set system = '' %}{% endif %}
{% for message in turns %}
{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}
{% endif %}
{% if message['role'] == 'user' %}
{{ bos_token + '[INST] ' + (system if loop.first else '') -}}
{{ message['content'].strip() + ' [/INST]' }}
{%- else %}
{% generation %}{{ ' ' + message['content'].strip() + ' ' + eos_token }}{% endgeneration %}
{%- endif %}
{% endfor %}"""

# Template, special tokens of it, and those that are named.
TEMPLATES = {
    "chatml": (CHATML, ["<|im_start|>", "<|im_end|>"], {"eos_token": "<|im_end|>"}),
    "llama-2": (LLAMA_2, [], {"bos_token": "<s>", "eos_token": "</s>"}),
}
USER = {"role": "user", "content": " hello,\nhow are you?  "}
ANSWER = {"role": "assistant", "content": "good morning"}
CHATS = [
    [USER], [USER, ANSWER, {"role": "user", "content": "né 😀 <b>"}], [USER, ANSWER],
]  # fmt: skip
