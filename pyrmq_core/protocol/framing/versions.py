"""Versions of servers, as the numbers in every command (common/MQVersion.java), and the requests that each supports."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import VERSION

# The first release with timer messages, batch topics, topic queue mappings, and `boundaryType` in offset searches.
V5_0_0: Final = 413
# The first release whose SQL92 has CONTAINS, STARTSWITH and ENDSWITH.
V5_1_3: Final = 439
# From this number on, each release has two numbers, the first for its snapshot. Each minor version has ten releases.
V4_0_0_SNAPSHOT: Final = 212
RELEASES: Final = 10


def version_name(version: int) -> str:
    """Returns a version number's release: `5.4.0`, `5.4.0-SNAPSHOT`, or the number itself for a version before 4.0."""
    if version < V4_0_0_SNAPSHOT:
        return str(version)
    release, snapshot = divmod(version - V4_0_0_SNAPSHOT, 2)
    minor, patch = divmod(release, RELEASES)
    major, minor = divmod(minor, RELEASES)
    return f"{4 + major}.{minor}.{patch}{'' if snapshot else '-SNAPSHOT'}"


def version_number(release: str) -> int:
    major, minor, patch = map(int, release.split("."))
    return V4_0_0_SNAPSHOT + 2 * (((major - 4) * RELEASES + minor) * RELEASES + patch) + 1


# The requests that came after 4.0.0, by the first release whose brokers or NameServers process them. Earlier servers
# may not answer them at all: a broker before 4.9.1 and a NameServer before 5.0 ignore unknown requests. Sources:
# AdminBrokerProcessor.java, DefaultRequestProcessor.java and BrokerController.java at each release's tag.
_NEW_REQUESTS: Final[Mapping[str, tuple[RequestCode, ...]]] = {
    "4.1.0": (RequestCode.CHECK_CLIENT_CONFIG, RequestCode.SEND_BATCH_MESSAGE, RequestCode.QUERY_CONSUME_QUEUE),
    "4.3.0": (RequestCode.QUERY_DATA_VERSION,),
    "4.5.2": (
        RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
        RequestCode.DELETE_ACL_CONFIG,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
        RequestCode.RESUME_CHECK_HALF_MESSAGE,
    ),
    "4.6.0": (
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.SEND_REPLY_MESSAGE,
        RequestCode.SEND_REPLY_MESSAGE_V2,
    ),
    "4.9.2": (RequestCode.ADD_WRITE_PERM_OF_BROKER,),
    "4.9.4": (RequestCode.GET_ALL_PRODUCER_INFO, RequestCode.DELETE_EXPIRED_COMMITLOG),
    "5.0.0": (
        RequestCode.GET_TIMER_CHECK_POINT,
        RequestCode.GET_TIMER_METRICS,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.QUERY_TOPICS_BY_CONSUMER,
        RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER,
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
        RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
        RequestCode.LITE_PULL_MESSAGE,
        RequestCode.QUERY_ASSIGNMENT,
        RequestCode.SET_MESSAGE_REQUEST_MODE,
        RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
        RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
        RequestCode.NOTIFY_MIN_BROKER_ID_CHANGE,
        RequestCode.EXCHANGE_BROKER_HA_INFO,
        RequestCode.GET_BROKER_HA_STATUS,
        RequestCode.RESET_MASTER_FLUSH_OFFSET,
        RequestCode.GET_BROKER_EPOCH_CACHE,
        RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
        RequestCode.POP_MESSAGE,
        RequestCode.ACK_MESSAGE,
        RequestCode.PEEK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.NOTIFICATION,
        RequestCode.POLLING_INFO,
    ),
    "5.1.2": (
        RequestCode.UPDATE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.REMOVE_COLD_DATA_FLOW_CTR_CONFIG,
        RequestCode.GET_COLD_DATA_FLOW_CTR_INFO,
        RequestCode.SET_COMMITLOG_READ_MODE,
    ),
    "5.1.3": (RequestCode.BATCH_ACK_MESSAGE,),
    "5.3.0": (
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        RequestCode.AUTH_CREATE_USER,
        RequestCode.AUTH_UPDATE_USER,
        RequestCode.AUTH_DELETE_USER,
        RequestCode.AUTH_GET_USER,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_CREATE_ACL,
        RequestCode.AUTH_UPDATE_ACL,
        RequestCode.AUTH_DELETE_ACL,
        RequestCode.AUTH_GET_ACL,
        RequestCode.AUTH_LIST_ACL,
    ),
    "5.3.1": (RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, RequestCode.CHECK_ROCKSDB_CQ_WRITE_PROGRESS),
    "5.3.2": (RequestCode.EXPORT_ROCKSDB_CONFIG_TO_JSON, RequestCode.RECALL_MESSAGE, RequestCode.POP_ROLLBACK),
    "5.4.0": (RequestCode.SWITCH_TIMER_ENGINE,),
    "5.5.0": (
        RequestCode.POP_LITE_MESSAGE,
        RequestCode.LITE_SUBSCRIPTION_CTL,
        RequestCode.GET_BROKER_LITE_INFO,
        RequestCode.GET_PARENT_TOPIC_INFO,
        RequestCode.GET_LITE_TOPIC_INFO,
        RequestCode.GET_LITE_CLIENT_INFO,
        RequestCode.GET_LITE_GROUP_INFO,
        RequestCode.TRIGGER_LITE_DISPATCH,
    ),
}
# The version number of the first release that knows a request. Every release from 4.0.0 on knows all other requests.
KNOWN_SINCE: Final[Mapping[int, int]] = {
    code: version_number(release) for release, codes in _NEW_REQUESTS.items() for code in codes
}
# The requests of `KNOWN_SINCE` that only NameServers answer, not brokers.
NEW_AT_NAMESERVERS: Final = frozenset(
    (
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.ADD_WRITE_PERM_OF_BROKER,
        RequestCode.REGISTER_TOPIC_IN_NAMESRV,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.BROKER_HEARTBEAT,
    )
)


def too_old_for(request_code: int, version: int) -> bool:
    """Returns True if a server of release `version` does not know the request.

    Returns False for a server before 4.0, whose requests are not listed. Returns False also for the version that this
    library's own servers report, since they support requests of later releases.
    """
    return V4_0_0_SNAPSHOT <= version < KNOWN_SINCE.get(request_code, 0) and version != VERSION
