"""Advice at the end of error messages: what to do about a server's refusal, or about bytes of another protocol.

The advice depends on the response code and on the server's remark, since brokers refuse very different requests with
the same code. The remarks are from broker/processor/AbstractSendMessageProcessor.java, AdminBrokerProcessor.java and
their neighbours (5.4.0).
"""

from __future__ import annotations

import re
from typing import Final

from pyrmq_core.protocol.framing.codes import RequestCode, ResponseCode

# The remedy for a response code whose remark matches no pattern of `BY_REMARK`.
REMEDIES: Final = {
    ResponseCode.SYSTEM_BUSY: "the broker sheds load; send less at once or retry later",
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: "the server is older than this request, or leaves it out; see the docs",
    ResponseCode.MESSAGE_ILLEGAL: "correct the message as the remark says",
    ResponseCode.SERVICE_NOT_AVAILABLE: "the broker cannot write (disk full, stopping, or a slave); look at its disk",
    ResponseCode.NO_PERMISSION: "check the topic's permission and, with ACL on, the access key and its policies",
    ResponseCode.TOPIC_NOT_EXIST: "create the topic, or switch on autoCreateTopicEnable at the broker",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "create the group, or switch autoCreateSubscriptionGroup on",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "correct the expression of tags or SQL92",
    ResponseCode.INVALID_PARAMETER: "correct the named value",
}
# The first entry whose code and remark match gives the remedy.
BY_REMARK: Final = (
    (ResponseCode.MESSAGE_ILLEGAL, r"message.?type", "the topic takes messages of another type: see its message.type"),
    (ResponseCode.MESSAGE_ILLEGAL, r"\bkeys?\b", "give the message keys: its topic keeps the last message of each key"),
    (
        ResponseCode.MESSAGE_ILLEGAL,
        r"length|size|too (long|large|big)|exceed",
        "make the message smaller; the broker's maxMessageSize may be lower",
    ),
    (
        ResponseCode.NO_PERMISSION,
        r"transaction message is forbidden",
        "rejectTransactionMessage is on at this broker: send it without a transaction, or switch that off there",
    ),
    (
        ResponseCode.SYSTEM_ERROR,
        r"PullMessageRequestHeader\.getSysFlag",  # 5.4.0's proxy reads a pop as a pull
        "a proxy's remoting port serves no pops: name the NameServer of its brokers",
    ),
    (
        ResponseCode.SYSTEM_ERROR,
        r"pop message is forbidden because timerWheelEnable",
        "switch timerWheelEnable on at the broker: pop keeps its receipts by timers",
    ),
    (
        ResponseCode.INVALID_PARAMETER,
        r"bind topic not match",
        "the group's attribute lite.bind.topic has to name the topic",
    ),
    (
        ResponseCode.ILLEGAL_OPERATION,
        r"Consumer group is not allowed to consume",
        "create the group, with the attribute lite.bind.topic, and consumeEnable on",
    ),
    (ResponseCode.NO_PERMISSION, r"black list", "the broker's configBlackList names it; change its file there"),
    (
        ResponseCode.NO_PERMISSION,
        r"^The \w+( \w+)?( can ?not| is) .*(empty|null|blank|invalid|illegal|Any)",
        "correct the named value",
    ),
)
# The requests that every NameServer answers, but no broker. A proxy answers only the first of them.
OF_NAMESERVERS: Final = frozenset(
    (
        RequestCode.GET_ROUTEINFO_BY_TOPIC,
        RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
        RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_KV_CONFIG,
        RequestCode.PUT_KV_CONFIG,
        RequestCode.DELETE_KV_CONFIG,
        RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
        RequestCode.WIPE_WRITE_PERM_OF_BROKER,
    )
)
NO_NAMESERVER: Final = "a broker or a proxy answers so: name a NameServer's address, whose port is 9876 by default"
OF_POP: Final = frozenset((RequestCode.POP_MESSAGE, RequestCode.ACK_MESSAGE, RequestCode.CHANGE_MESSAGE_INVISIBLETIME))
NO_POP: Final = "pop needs a broker of 5.0 or later; a PushConsumer works with earlier ones, and through proxies"
OF_LITE_GROUPS: Final = frozenset((RequestCode.POP_LITE_MESSAGE, RequestCode.LITE_SUBSCRIPTION_CTL))
NO_LITE_GROUPS: Final = "groups of lite topics need a broker of 5.5 or later, and no proxy"
# The first bytes of other protocols, where a frame of RocketMQ begins with its length.
OTHER_PROTOCOLS: Final = (
    (rb"HTTP", "an HTTP server's answer: this is the port of a web server or an HTTP proxy"),
    (
        rb"(GET|PUT|HEAD|POST|DELETE|OPTIONS|CONNECT|PATCH) ",
        "an HTTP request: this port speaks RocketMQ's own protocol",
    ),
    (rb"PRI ", "HTTP/2, as gRPC clients begin: this port speaks RocketMQ's remoting protocol"),
    (rb"\x00\x00.\x04.\x00\x00\x00", "HTTP/2: this is a gRPC port, as a proxy's 8081; its remoting port is 8080"),
    (rb"[\x14-\x17]\x03[\x00-\x04]", "TLS: switch TLS on at the end that speaks plain, or off at the other"),
    (rb"SSH-", "SSH: this is the port of another service"),
)


def remedy_of(request_code: int, code: int, remark: str) -> str:
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and request_code in OF_NAMESERVERS:
        return NO_NAMESERVER
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and request_code in OF_POP:
        return NO_POP
    if code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED and request_code in OF_LITE_GROUPS:
        return NO_LITE_GROUPS
    for refused, pattern, remedy in BY_REMARK:
        if code == refused and re.search(pattern, remark, re.IGNORECASE):
            return remedy
    return REMEDIES[ResponseCode(code)] if code in REMEDIES else ""


def other_protocol(first: bytes) -> str:
    return next((words for start, words in OTHER_PROTOCOLS if re.match(start, first, re.DOTALL)), "")
