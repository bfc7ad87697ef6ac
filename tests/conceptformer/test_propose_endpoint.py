"""Where a proposer is asked: addresses, settings without sense, and a key that no message shows."""

from __future__ import annotations

import re

import pytest

from conceptformer.errors import ConceptFormerError
from conceptformer.proposals.endpoint import Endpoint

ENDPOINT = {
    "base_url": "http://localhost:8000/v1", "model": "m", "key_env": "KEY", "temperature": 0.2, "max_tokens": None,
    "structured": True, "timeout_seconds": 60, "max_reply_bytes": 1000,
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"base_url": None}, "api.base_url: expected the address"),
        ({"base_url": "localhost:8000"}, "api.base_url is 'localhost:8000'"),
        ({"base_url": "http://h:port/v1"}, "cannot be read as an address"),
        ({"base_url": "http://h/v1?key=x"}, "api.base_url holds a '?' or a '#'"),
        ({"base_url": "http://300.1.1.1/v1"}, "api.base_url is 'http://300.1.1.1/v1'; exp"),
        ({"base_url": "http://a b/v1"}, "api.base_url is 'http://a b/v1'; expected"),
        ({"base_url": "http://a..b/v1"}, "api.base_url is 'http://a..b/v1'; expected"),
        ({"base_url": "http://a%20b/v1"}, "api.base_url is 'http://a%20b/v1'; expected"),
        (
            {"base_url": "http://h/v1/chat/completions/"},
            "write api.base_url=http://h/v1, without /chat/completions",
        ),
        ({"model": " "}, "api.model: expected the name"),
        ({"timeout_seconds": 0}, "api.timeout_seconds is 0"),
        ({"max_tokens": 0}, "api.max_tokens is 0"),
        ({"structured": "yes"}, "api.structured: expected true or false"),
    ],
)
def test_settings_without_sense_are_refused_with_their_name(change, told):
    with pytest.raises(ConceptFormerError, match=re.escape(told)):
        Endpoint(**ENDPOINT | change)


def test_a_key_is_taken_from_the_environment_without_the_line_end_of_a_secrets_file(monkeypatch):
    monkeypatch.setenv("KEY", "sk-0123456789\n")
    assert Endpoint(**ENDPOINT).key() == "sk-0123456789"
    assert "sk-0123456789" not in repr(Endpoint(**ENDPOINT))


@pytest.mark.parametrize("key", ["sk-0123\n456789", "sk-\u2013-456789", "sk 456789"])
def test_a_key_that_no_header_can_hold_is_refused_without_being_shown(monkeypatch, key):
    monkeypatch.setenv("KEY", key)
    with pytest.raises(ConceptFormerError, match="KEY holds signs that no key has") as caught:
        Endpoint(**ENDPOINT).key()
    assert "456789" not in str(caught.value)


def test_an_address_with_a_password_is_refused_without_being_shown():
    with pytest.raises(ConceptFormerError, match="user name or password") as caught:
        Endpoint(**ENDPOINT | {"base_url": "http://me:hidden@host/v1"})
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize("name", ["sk-0123456789-abc", "", "MY KEY", 7])
def test_what_cannot_name_a_variable_is_refused_without_being_shown(name):
    with pytest.raises(
        ConceptFormerError, match="api.key_env: expected the name of the environment variable"
    ) as caught:
        Endpoint(**ENDPOINT | {"key_env": name})
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize("address", ["[::1]:8000", "a_b.local", "h.", "127.0.0.1", "b\u00fccher.de", "h-1:8000"])
def test_addresses_of_all_kinds_are_taken(address):
    url = f"https://{address}/some/v1/"
    assert Endpoint(**ENDPOINT | {"base_url": url}).base_url == url
