"""A broker process with settings for features it lacks: it does not start, and names the setting."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.stranger import broker_process


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("aclEnable", "true"),
        ("authorizationEnabled", "True"),
        ("migrateAuthFromV1Enabled", "true"),
        ("deleteWhen", "at noon"),
        ("enableRemoteEscape", "true"),
        ("flushDiskType", "SYNC"),
        ("storeType", "defaultRocksDB"),
    ],
)
def test_a_broker_that_would_be_open_or_keep_otherwise_does_not_start(tmp_path: Path, name: str, value: str) -> None:
    given: dict[str, Any] = {name: value}
    with pytest.raises(AssertionError, match=rf"broker: .*{name}"), broker_process(tmp_path, **given):
        pass
    assert not (tmp_path / "store").exists()


def test_the_settings_that_come_with_apaches_broker_start_ours(tmp_path: Path) -> None:
    """The lines of conf/broker.conf of 5.4.0."""
    given: dict[str, Any] = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "brokerId": "0",
        "deleteWhen": "04",
        "fileReservedTime": "48",
        "brokerRole": "ASYNC_MASTER",
        "flushDiskType": "ASYNC_FLUSH",
    }
    with broker_process(tmp_path, **given) as broker:
        assert "no such setting" not in broker.output()
        assert "without effect" not in broker.output()


def test_harmless_and_misspelt_settings_are_reported(tmp_path: Path) -> None:
    given: dict[str, Any] = {"aclEnable": "false", "brokerRoll": "ASYNC_MASTER", "sendMessageThreadPoolNums": "4"}
    with broker_process(tmp_path, **given) as broker:
        assert "no such setting: brokerRoll (did you mean brokerRole?)" in broker.output()
        assert "without effect here: sendMessageThreadPoolNums" in broker.output()
