"""Parts of a run of proposals, each by itself: waits, budgets, images as they are sent, the prompt."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from conceptformer.data.one_line import one_line
from conceptformer.errors import ConceptFormerError, DataError
from conceptformer.proposals import prompt
from conceptformer.proposals.budget import Budget, BudgetSpentError, Price, Usage
from conceptformer.proposals.failed_requests import FailedRequestError, names_model
from conceptformer.proposals.frame_watch import FrameWatch
from conceptformer.proposals.page_images import SentForm
from conceptformer.proposals.pairs import read_pairs
from conceptformer.proposals.prompt import make_messages
from conceptformer.proposals.retries import RetryPolicy, retry_after_seconds
from conceptformer.regions import frame_named
from tests.conceptformer.tiny_models import noise_image

# Waits.


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        # 784111777 is 6 November 1994, 8:49:37, the example of RFC 9110; "now" is ten seconds before.
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 GMT"}, 10),
        ({"retry-after": "Sun, 06 Nov 1994 08:49:37 -0000"}, 10),
        ({"retry-after": "Sun, 06 Nov 1994 08:00:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "Sun, 99 Nov 1994 99:49:37 GMT"}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_in_each_of_its_forms(headers, seconds):
    assert retry_after_seconds(headers, now=784111777 - 10) == seconds


def test_waits_double_up_to_the_longest_with_jitter_below():
    policy = RetryPolicy(attempts=9, first_wait_seconds=1, longest_wait_seconds=10, longest_pause_seconds=60)
    for attempt, upper in ((1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (2000, 10)):
        waits = [policy.wait_seconds(attempt, None) for _ in range(200)]
        assert upper / 2 <= min(waits) < 0.6 * upper and 0.9 * upper < max(waits) <= upper


def test_what_the_server_asks_for_is_waited_for_in_full():
    policy = RetryPolicy(attempts=2, first_wait_seconds=1, longest_wait_seconds=2, longest_pause_seconds=60)
    waits = [policy.wait_seconds(1, 5.0) for _ in range(200)]
    assert min(waits) >= 5 and len(set(waits)) > 100 and max(waits) < 6


def test_a_fixed_small_pause_does_not_use_up_the_attempts():
    """A server that answers "Retry-After: 1" to every call over its limit saw all attempts within a few seconds."""
    policy = RetryPolicy(attempts=9, first_wait_seconds=1, longest_wait_seconds=30, longest_pause_seconds=60)
    assert all(policy.wait_seconds(5, 1.0) >= 8 for _ in range(200))


# Budgets.


def test_a_budget_of_calls_allows_exactly_so_many():
    budget, usage = Budget(calls=2), Usage()
    budget.take_call(usage)
    budget.take_call(usage)
    with pytest.raises(BudgetSpentError, match="the budget of 2 calls is spent"):
        budget.take_call(usage)
    assert usage.calls == 2


def test_a_budget_of_tokens_ends_with_the_call_that_uses_the_last():
    budget, usage = Budget(tokens=100), Usage()
    for tokens in ((60, 39), (1, 0)):
        budget.take_call(usage)
        budget.record(usage, tokens)
    with pytest.raises(BudgetSpentError, match="the budget of 100 tokens is spent"):
        budget.take_call(usage)
    assert (usage.calls, usage.tokens) == (2, 100)


def test_a_budget_of_tokens_that_are_not_reported_is_an_error_and_not_unlimited():
    usage = Usage()
    Budget(calls=3).record(usage, None)
    assert usage.unreported == 1
    with pytest.raises(ConceptFormerError, match="does not report the tokens"):
        Budget(tokens=3).record(usage, None)


def test_cost_is_by_the_million_and_unknown_without_prices():
    usage = Usage(input_tokens=2_000_000, output_tokens=500_000)
    assert Price(0.5, 3).cost(usage) == 0.5 * 2 + 3 * 0.5
    assert Price().cost(usage) is None


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Budget(calls=0), "budget.calls is 0; expected a whole number of at least 1, or null"),
        (lambda: Budget(tokens=True), "budget.tokens is True"),
        (lambda: Price(1, None), "expected both"),
        (lambda: Price(-1, 1), "price.input is -1"),
        (lambda: RetryPolicy(0, 1, 1, 1), "retry.attempts is 0"),
        (lambda: RetryPolicy(1, 1, float("nan"), 1), "retry.longest_wait_seconds is nan"),
        (lambda: SentForm(100, 28, "jpeg"), "image.max_pixels is 100; expected a whole number of at least 784"),
        (lambda: SentForm(1000, 1, "gif"), "image.format is 'gif'"),
    ],
)
def test_settings_without_sense_are_refused_with_their_name(make, told):
    with pytest.raises(ConceptFormerError, match=re.escape(told)):
        make()


# Images as they are sent.


@given(st.integers(1, 3000), st.integers(1, 3000), st.sampled_from([1, 28, 32]), st.integers(1, 2000))
def test_sent_sizes_keep_to_the_budget_and_the_multiple_and_nearly_to_the_shape(width, height, unit, budget):
    form = SentForm(budget * unit**2, unit, "jpeg")
    sent = form.input_size((width, height))
    assert sent[0] % unit == sent[1] % unit == 0 and min(sent) >= unit
    assert sent[0] * sent[1] <= form.max_pixels
    if unit == 1 and width * height <= form.max_pixels:
        assert sent == (width, height)
    scale = min(1, (form.max_pixels / (width * height)) ** 0.5)
    if min(width, height) * scale >= unit:
        # Half a unit by rounding, and what the longer side gives way for it.
        assert all(
            abs(side - own * scale) <= unit * (1.5 + max(sent) / min(sent))
            for side, own in zip(sent, (width, height), strict=True)
        )


@pytest.mark.parametrize(("kind", "head"), [("jpeg", b"\xff\xd8\xff"), ("png", b"\x89PNG")])
def test_an_image_is_sent_upright_in_the_size_that_is_recorded(tmp_path, kind, head):
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter
    noise_image(300, 200).save(tmp_path / "page.jpg", exif=exif)
    sent = SentForm(100 * 28**2, 28, kind).encode(tmp_path / "page.jpg")
    assert sent.image_size == (200, 300) and sent.input_size == (196, 308)
    prefix, data = sent.url.split(",")
    content = base64.b64decode(data, validate=True)
    assert prefix == f"data:image/{kind};base64" and content.startswith(head)
    assert Image.open(io.BytesIO(content)).size == sent.input_size


def test_an_image_that_its_format_cannot_hold_is_an_error_of_that_page(tmp_path):
    Image.new("L", (70_000, 2)).save(tmp_path / "strip.png")
    with pytest.raises(DataError, match="70000 x 2 pixels cannot be sent as jpeg"):
        SentForm(1_000_000, 1, "jpeg").encode(tmp_path / "strip.png")


# The prompt.


def test_another_wording_is_another_version():
    texts = json.dumps([prompt.SYSTEM, prompt.QUESTION, prompt._NUMBERS, dict(prompt.REPLY_SCHEMA)], sort_keys=True)
    versions = {"1": "16871103864cf07a"}
    assert hashlib.sha256(texts.encode()).hexdigest()[:16] == versions[prompt.PROMPT_VERSION]


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ("absolute", "640 pixels wide and 480 pixels high"),
        ("relative", "between 0 and 1"),
        ("relative1000", "between 0 and 1000"),
    ],
)
def test_the_prompt_names_the_frame_and_the_question_behind_the_image(frame, said):
    frame_named(frame)
    system, user = make_messages("What is {it}?", "data:x", frame, (640, 480))
    image, text = user["content"]
    assert (system["role"], user["role"]) == ("system", "user")
    assert image == {"type": "image_url", "image_url": {"url": "data:x"}}
    assert said in text["text"] and text["text"].endswith("Question: What is {it}?")


@pytest.mark.parametrize(
    ("query", "question"),
    [
        ("Instruct: Find pages.\nQuery: How many?", "How many?"),
        ("Instruct: Find pages.\\nQuery: How many?", "How many?"),
        ("What does 'Instruct: x\nQuery: y' mean?", "What does 'Instruct: x\nQuery: y' mean?"),
        ("Instruct: me", "Instruct: me"),
    ],
)
def test_instructions_for_retrievers_are_not_part_of_the_question(query, question):
    _, user = make_messages(query, "data:x", "relative", (640, 480))
    assert user["content"][1]["text"].endswith(f"\n\nQuestion: {question}")


@pytest.mark.parametrize(
    ("text", "most", "line"),
    [
        ("a\n b\u2028\tc ", None, "a b c"),
        ("half \ud83d", None, "half \\ud83d"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abc..."),
    ],
)
def test_foreign_text_is_put_into_one_line(text, most, line):
    assert one_line(text, most=most) == line


# Doubts about the frame.


def watched(stated: str, boxes, input_size=(1260, 1624), count=40) -> str | None:
    watch = FrameWatch(stated)
    for number in range(count):
        watch.see([boxes(number / (count - 1))], input_size)
    return watch.doubt()


def test_thousandths_read_as_pixels_of_a_larger_image_are_doubted():
    doubt = watched("absolute", lambda share: [0, 0, 500 + 490 * share, 900])
    assert "no box of 40 replies ends beyond 79% of the page" in doubt and "frame=relative1000" in doubt


def test_thousandths_read_as_pixels_of_a_smaller_image_are_doubted():
    doubt = watched("absolute", lambda share: [0, 0, 500 + 490 * share, 900], input_size=(600, 800))
    assert "100% of the replies name places beyond the page" in doubt and "frame=relative1000" in doubt


def test_pixels_of_a_smaller_image_read_as_thousandths_are_doubted():
    doubt = watched("relative1000", lambda share: [0, 0, 300 + 290 * share, 700], input_size=(600, 800))
    assert "frame=absolute" in doubt


def test_boxes_in_the_stated_frame_are_not_doubted():
    assert watched("absolute", lambda share: [0, 0, 600 + 650 * share, 1600]) is None
    assert watched("relative1000", lambda share: [0, 0, 990 * share, 900]) is None
    assert watched("relative", lambda share: [0, 0, share, 0.5]) is None
    # Too few, none at all, and no boxes.
    assert watched("absolute", lambda share: [0, 0, 990 * share, 900], count=29) is None
    assert watched("absolute", lambda share: ["a", None, float("nan"), 1e300]) is None


def test_where_most_replies_leave_the_page_four_are_enough_for_a_doubt():
    beyond = {"boxes": lambda share: [0, 0, 500 + 490 * share, 900], "input_size": (600, 800)}
    assert "100% of the replies name places beyond the page" in watched("absolute", **beyond, count=4)
    assert watched("absolute", **beyond, count=3) is None
    # Half of them, and less than half.
    for least, doubted in ((0.5, True), (0.7, False)):
        some = {**beyond, "boxes": lambda share, least=least: [0, 0, 500, 900 if share >= least else 700]}
        assert ("50% of the replies" in str(watched("absolute", **some, count=4))) is doubted
    # They fit no other frame.
    assert watched("absolute", lambda share: [0, 0, 500, 1200], input_size=(600, 800), count=4) is None


@pytest.mark.parametrize(
    ("message", "code", "names"),
    [
        ("the server answers 404: The model `m-1` does not exist.", None, True),
        ('the server answers 404: model "m-1" not found, try pulling it first', None, True),
        ("the server answers 404: nothing more", "model_not_found", True),
        ("the server answers 404: The model does not exist", None, False),
        ("the server answers 404: m-1 has no endpoint that supports response_format", None, False),
    ],
)
def test_a_server_that_has_no_such_model_is_told_from_one_that_cannot_do_something(message, code, names):
    assert names_model(FailedRequestError(message, status=404, code=code), "m-1") is names


def test_a_parquet_file_is_no_list_of_pairs_and_what_makes_one_is_said(tmp_path):
    with pytest.raises(DataError, match="expected pairs in JSONL; python -m conceptformer.opendocvqa makes them"):
        read_pairs(tmp_path / "train.parquet")
