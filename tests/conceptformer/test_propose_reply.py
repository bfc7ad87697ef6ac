"""What counts as a reply: answers of servers, and the JSON in the texts of models."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conceptformer.proposals.answers import read_answer
from conceptformer.proposals.reply import Proposal, UnreadableReplyError, parse_reply

ONE = '{"think": "x", "boxes": [{"area": [1, 2, 3, 4], "describe": "a table"}]}'
READ = Proposal(([1, 2, 3, 4],), ("a table",))


def fault_of(text: str) -> str:
    with pytest.raises(UnreadableReplyError) as caught:
        parse_reply(text)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        ONE,
        f"\n  {ONE}\n",
        f"```json\n{ONE}\n```",
        f"```\n{ONE}\n```",
        f"The set {{1, 2}} of rows holds it. So:\n\n{ONE}\n\nI hope this helps.",
        f'<think>First I thought of {{"boxes": []}}.</think>\n{ONE}',
        f"{ONE}\n{ONE}",
        f'{{"note": 1}} {ONE}',
        ONE.replace('"think": "x", ', ""),
        ONE.replace('"x"', json.dumps('as {"boxes": []} would be wrong')),
        ONE.replace("}]", ', "sure": true}]'),
    ],
)  # fmt: skip
def test_one_object_is_read_alone_in_fences_and_in_prose(text):
    assert parse_reply(text) == READ


def test_no_evidence_is_a_reply_too():
    assert parse_reply('{"think": "nothing here", "boxes": []}') == Proposal((), ())


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "the reply is empty"),
        ("<think>It is hard.</think>", "the reply is empty"),
        (f"<think>A draft: {ONE} or rather", "the reply ends within its reasoning"),
        ("I cannot see a page.", "no JSON object in the reply: 'I cannot see a page.'"),
        ('{"bboxes": []}', "no key 'boxes'; its keys: 'bboxes'"),
        ("[[1, 2, 3, 4]]", "no JSON object"),
        ('[{"bbox_2d": [1, 2, 3, 4], "label": "a"}]', "no key 'boxes'; its keys: 'bbox_2d', 'label'"),
        ('{"result": {"boxes": []}}', "no key 'boxes'; its keys: 'result'"),
        ('{"boxes": {"area": [1, 2, 3, 4]}}', "'boxes' is {'area': [1, 2, 3, 4]}; expected a list"),
        ('{"boxes": [[1, 2, 3, 4]]}', "box 1 is [1, 2, 3, 4]; expected an object"),
        ('{"boxes": [{"bbox": [1, 2, 3, 4], "describe": ""}]}', "box 1 has no key 'area'; its keys: 'bbox', "),
        ('{"boxes": [{"area": [1, 2, 3, 4]}]}', "box 1 has no key 'describe'"),
        ('{"boxes": [{"area": [1, 2, 3, 4], "describe": 7}]}', "'describe' is 7; expected a text"),
        (f'{ONE} or {{"boxes": []}}', "2 JSON objects with the key 'boxes'"),
        ('{"boxes": [], "boxes": [{"area": [1, 2, 3, 4], "describe": ""}]}', "stands there twice"),
        (ONE[:-1], "the JSON with the key 'boxes' is broken or cut off"),
        ('{"think": "not {"boxes": []} but", "boxes": [{"area": [1, 2, 3, 4], "describe": ""}]}', "broken JSON"),
    ],
)  # fmt: skip
def test_anything_else_is_refused_with_its_reason(text, fault):
    assert fault in fault_of(text)


def test_half_a_character_in_a_label_can_be_written_to_a_file():
    text = '{"boxes": [{"area": [1, 2, 3, 4], "describe": "a \\ud83d b"}]}'
    assert parse_reply(text).labels == ("a ? b",)


@given(st.text(alphabet='{}[]":,boxes area1\\', max_size=80))
def test_no_text_leads_to_another_error(text):
    try:
        parse_reply(text)
    except UnreadableReplyError as error:
        assert str(error)


def test_the_search_for_an_object_ends():
    # From each brace on the rest would be looked through: for a long reply of braces that is a matter of minutes.
    assert parse_reply("{ " * 199 + ONE) == READ
    assert "broken" in fault_of("{ " * 200 + ONE)


def test_objects_within_objects_without_end_are_no_reply():
    assert "no JSON object" in fault_of('{"a":[' * 100_000)


# Answers of servers.


def answer_to(value: object, most_bytes: int = 1000):
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return read_answer(body, most_bytes=most_bytes, hide=lambda text: text.replace("SECRET", "[key]"))


def completion(**more):
    message = {"role": "assistant", "content": "text", **more.pop("message", {})}
    return {"choices": [{"message": message, "finish_reason": "stop", **more.pop("choice", {})}], **more}


def test_a_completion_is_read_with_its_tokens():
    found = answer_to(completion(usage={"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}))
    assert (found.content, found.finish_reason, found.tokens, found.fault, found.body) == (
        "text", "stop", (7, 2), None, None
    )  # fmt: skip


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_that_is_told_apart_is_kept(name):
    assert answer_to(completion(message={name: "hm"})).reasoning == "hm"


@pytest.mark.parametrize("usage", [None, 7, {}, {"prompt_tokens": "7", "completion_tokens": 2}, {"prompt_tokens": -1}])
def test_tokens_that_are_not_told_are_not_guessed(usage):
    found = answer_to(completion(usage=usage))
    assert found.tokens is None and found.content == "text"


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"<!doctype html><title>Welcome</title>", "the answer is no JSON: '<!doctype html>"),
        (b"\xff\xfe\x00", "the answer is no JSON"),
        (b"[" * 900, "the answer is no JSON"),
        (b"x" * 1001, "longer than 1,000 bytes"),
        ([], "no chat completion"),
        ({"error": {"message": "overloaded"}}, 'no chat completion: \'{"error": {"message": "overloaded"}}\''),
        ({"choices": []}, "no chat completion"),
        ({"choices": [{"message": None}]}, "no chat completion"),
        (completion(message={"content": None}), "the reply holds no text"),
        (completion(message={"content": None, "refusal": "no"}), "declined to answer"),
        (completion(choice={"finish_reason": "length"}), "cut off at its greatest length; raise api.max_tokens"),
        (completion(choice={"finish_reason": "content_filter"}), "content filter"),
    ],
)
def test_what_is_no_whole_reply_is_told_apart(value, fault):
    assert fault in answer_to(value).fault


def test_what_must_not_be_written_is_taken_out_of_everything():
    texts = {"content": "my SECRET", "reasoning_content": "SECRET", "refusal": None}
    found = answer_to(completion(message=texts, choice={"finish_reason": "SECRET"}))
    assert (found.content, found.reasoning, found.finish_reason) == ("my [key]", "[key]", "[key]")
    for body in (b"no json SECRET", b'{"error": "SECRET"}', b"SECRET" * 1000):
        found = answer_to(body)
        assert "SECRET" not in f"{found}"
