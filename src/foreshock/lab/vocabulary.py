"""A word-level tokenizer of about a hundred words whose chat template TRL's own tool path accepts.

The strings around a tool call are single tokens, so a tiny policy learns to call a tool in a few tokens while TRL still
renders, parses and appends real JSON calls.
"""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

PAD, UNKNOWN, END = "<pad>", "<unk>", "<|end|>"
USER, ASSISTANT, TOOL = "<|user|>", "<|assistant|>", "<|tool|>"
CALL_OPEN = '<tool_call>\n{"name": "lookup", "arguments": {"key": "'
CALL_CLOSE = '"}}\n</tool_call>'

ENTITIES = tuple(f"e{i}" for i in range(12))
VALUES = tuple(f"v{i}" for i in range(16))
THOUGHTS = (
    "well", "so", "first", "then", "next", "maybe", "also", "now", "here", "again", "still", "thus", "hence", "but",
    "and", "since",
)  # fmt: skip
WORDS = (
    "what", "has", "think", "about", "?", "answer", "none", "value", "=", "is", "holds", "found", "for", "moved", "to",
    "not", "ask", "see", "known",
)  # fmt: skip

SPECIAL = (PAD, UNKNOWN, END, USER, ASSISTANT, TOOL)
VOCABULARY = (*SPECIAL, CALL_OPEN, CALL_CLOSE, *ENTITIES, *VALUES, *THOUGHTS, *WORDS)

# Every part that the template adds is one token; a message after the assistant's END starts at once, so that rendering
# a conversation never changes what came before (TRL requires it of a tool template).
CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message.role == 'assistant' -%}"
    "<|assistant|>{{ message.content }}"
    "{%- for call in message.tool_calls or [] -%}"
    '<tool_call>\n{"name": "{{ call.function.name }}", "arguments": '
    "{{ call.function.arguments | tojson }}}\n</tool_call>"
    "{%- endfor -%}"
    "{%- else -%}"
    "<|{{ message.role }}|>{{ message.content }}"
    "{%- endif -%}"
    "<|end|>"
    "{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)

# How transformers reads an assistant turn back into a message; TRL calls it through `parse_response`.
RESPONSE_TEMPLATE = {
    "defaults": {"role": "assistant"},
    "start_anchor": ASSISTANT,
    "fields": {
        "tool_calls": {
            "open": "<tool_call>",
            "close_pattern": r"</tool_call>\s*",
            "repeats": True,
            "content": "json",
            "transform": {"type": "function", "function": "{content}"},
        },
        "content": {"close_pattern": r"<\|end\|>\s*", "content": "text"},
    },
}


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Build the tokenizer: one id per word, whitespace between words, the tool-call strings as single tokens.

    Decoding puts one space between tokens, so the key inside a decoded call may carry spaces around it.
    """
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(VOCABULARY)}, unk_token=UNKNOWN))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    core.add_tokens([AddedToken(token, special=False, normalized=False) for token in (CALL_OPEN, CALL_CLOSE)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=PAD,
        unk_token=UNKNOWN,
        eos_token=END,
        padding_side="left",
        clean_up_tokenization_spaces=False,
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    return tokenizer
