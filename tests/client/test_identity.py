"""Client ids never clash, and keys are never shown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyrmq_core import Client, InvalidArgument
from pyrmq_core.client.remoting.identity import Credentials, client_id, credentials_of

BASE = {"ip": "10.0.0.1", "pid": 7, "instance_name": None, "nameservers": ("a:1", "b:2"), "access_key": "k", "draw": 5}


def made(**changes: object) -> str:
    values = {**BASE, **changes}
    return client_id(
        values["ip"],  # type: ignore[arg-type]
        values["pid"],  # type: ignore[arg-type]
        values["instance_name"],  # type: ignore[arg-type]
        values["nameservers"],  # type: ignore[arg-type]
        values["access_key"],  # type: ignore[arg-type]
        draw=values["draw"],  # type: ignore[arg-type]
    )


def test_it_reads_as_javas_does() -> None:
    address, _, name = made().partition("@")
    assert address == "10.0.0.1"
    assert name.startswith("7#")
    assert made(instance_name="spark").startswith("10.0.0.1@spark#7#")
    assert made(ip="fd00::2").startswith("[fd00::2]@7#")


@pytest.mark.parametrize(
    "change",
    [
        {"ip": "10.0.0.2"},
        {"pid": 8},
        {"instance_name": "other"},
        {"nameservers": ("a:1",)},
        {"nameservers": ("c:3", "b:2")},
        {"access_key": "other"},
        {"access_key": None},
        {"draw": 6},
    ],
)
def test_whatever_differs_makes_another_id(change: dict[str, object]) -> None:
    """Process, cluster, credentials; and with all of them equal, the number that each client draws."""
    assert made(**change) != made()
    if "instance_name" not in change:
        assert made(**change, instance_name="same") != made(instance_name="same")


def test_the_order_of_nameservers_does_not_matter() -> None:
    assert made(nameservers=("b:2", "a:1")) == made()


@given(st.text(min_size=1), st.integers(0, 2**64))
def test_never_an_empty_or_secret_part(access_key: str, draw: int) -> None:
    text = made(access_key=access_key, draw=draw)
    assert text == made(access_key=access_key, draw=draw & 0xFFFFFFFFFFFF)
    assert len(text.rsplit("#", 1)[1]) == 20


def test_two_clients_of_one_name_differ() -> None:
    first, second = (Client(nameserver="127.0.0.1:1", instance_name="same") for _ in range(2))
    assert first.client_id != second.client_id


def test_secrets_are_not_shown() -> None:
    keys = Credentials("reader", "s3cret", "t0ken")
    assert repr(keys) == "Credentials(access_key='reader')"
    assert f"{keys}" == repr(keys)


@pytest.mark.parametrize("keys", [("a", None), (None, "s"), ("a", ""), ("", "s")])
def test_half_a_pair_is_refused(keys: tuple[str | None, str | None]) -> None:
    with pytest.raises(InvalidArgument, match="access_key and secret_key belong together") as caught:
        credentials_of(*keys)
    assert "s" not in str(caught.value).split()


def test_a_token_needs_keys() -> None:
    with pytest.raises(InvalidArgument, match="security_token belongs to"):
        credentials_of(None, None, "t0ken")
    assert credentials_of(None, None) is None
    assert credentials_of("", "") is None
    assert credentials_of("a", "s", "t") == Credentials("a", "s", "t")
