from __future__ import annotations

import random

import pytest

pytest.importorskip("trl")

from trl.chat_template_utils import is_chat_template_prefix_preserving, parse_response, supports_tool_calling

from foreshock.lab.environment import Habits, dialogue
from foreshock.lab.vocabulary import ASSISTANT, CALL_CLOSE, CALL_OPEN, END, TOOL, UNKNOWN, USER, build_tokenizer

QUESTION = [{"role": "user", "content": "what has e1 ?"}]


@pytest.fixture(scope="module")
def tokenizer():
    return build_tokenizer()


def prompt_ids(tokenizer):
    return tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=False)


def parsed(tokenizer, text):
    return parse_response(
        tokenizer, tokenizer(text, add_special_tokens=False)["input_ids"], prefix=prompt_ids(tokenizer)
    )


def text_with_spaced_tokens(text):
    """Put spaces around the tokens that the template sets close; decoding puts one between any two tokens."""
    for token in (USER, ASSISTANT, TOOL, END, CALL_OPEN, CALL_CLOSE):
        text = text.replace(token, f" {token} ")
    return text


def test_dialogues_hold_no_unknown_token_and_come_back_from_their_ids(tokenizer):
    rng = random.Random(3)
    for _ in range(300):
        text = tokenizer.apply_chat_template(dialogue(Habits(redirect_share=0.6), rng), tokenize=False)
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.unk_token_id not in ids
        assert tokenizer.decode(ids).split() == text_with_spaced_tokens(text).split()


def test_unknown_words_are_marked(tokenizer):
    assert tokenizer.convert_ids_to_tokens(tokenizer("zebra", add_special_tokens=False)["input_ids"]) == [UNKNOWN]


def test_a_call_is_four_tokens_and_the_vocabulary_is_small(tokenizer):
    ids = tokenizer(f"{CALL_OPEN}e7{CALL_CLOSE}{END}", add_special_tokens=False)["input_ids"]
    assert tokenizer.convert_ids_to_tokens(ids) == [CALL_OPEN, "e7", CALL_CLOSE, END]
    assert len(tokenizer) <= 110


def test_trl_accepts_the_template_for_tools(tokenizer):
    assert supports_tool_calling(tokenizer)
    assert is_chat_template_prefix_preserving(tokenizer)


def test_trl_parses_calls_with_and_without_words_before_them(tokenizer):
    message = parsed(tokenizer, f"so then {CALL_OPEN}e7{CALL_CLOSE}{END}")
    assert message["content"].split() == ["so", "then"]
    (call,) = message["tool_calls"]
    assert call["type"] == "function"
    assert call["function"]["name"] == "lookup"
    assert call["function"]["arguments"]["key"].strip() == "e7"


@pytest.mark.parametrize("text", [f"answer v3 {END}", "answer v3", f"{CALL_OPEN}e7{END}", f"e7{CALL_CLOSE}{END}"])
def test_trl_reads_text_and_torn_calls_as_text(tokenizer, text):
    message = parsed(tokenizer, text)
    assert not message.get("tool_calls")
    assert message["role"] == "assistant"
