"""Namespaces as prefixes: the names of a tenant's topics and groups begin with the tenant's name, `NS%topic`.

    T               NS%T
    %RETRY%G        %RETRY%NS%G
    %DLQ%G          %DLQ%NS%G
    %LMQ%$T$L       %LMQ%$NS%T$L
    TBW102, ...     unchanged: RocketMQ's own topics and groups belong to no tenant

Sources: remoting/protocol/NamespaceUtil.java, common/utils/NameServerAddressUtils.java (5.3.3).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from pyrmq_core.model import MessageExt
from pyrmq_core.protocol.messages.names import DLQ_PREFIX, LMQ_PREFIX, RETRY_PREFIX, is_system_topic

SEPARATOR: Final = "%"
SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"
# The NameServer address of a hosted RocketMQ contains the namespace: http://MQ_INST_123_abc.host:80
INSTANCE_ENDPOINT: Final = re.compile(r"(?:\w+://)?(MQ_INST_\w+_\w+)\..*")


def with_namespace(name: str, namespace: str | None) -> str:
    """Returns the name of a topic or group with the namespace put before it, as brokers know it.

    Names that have the namespace already, and RocketMQ's own names, stay unchanged. So does any name if `namespace` is
    None.
    """
    if not namespace or is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX):
        return name
    prefix, own_name = _split(name)
    return name if own_name.startswith(namespace + SEPARATOR) else f"{prefix}{namespace}{SEPARATOR}{own_name}"


def without_namespace(name: str, namespace: str | None) -> str:
    if not namespace:
        return name
    prefix, own_name = _split(name)
    return prefix + own_name.removeprefix(namespace + SEPARATOR)


def is_reachable(name: str, namespace: str | None) -> bool:
    """Returns whether a client with this namespace can address a topic or group.

    It can if the name begins with the namespace, or is RocketMQ's own. Without a namespace it can address every name.
    """
    return with_namespace(without_namespace(name, namespace), namespace) == name


def message_without_namespace(message: MessageExt, namespace: str | None) -> MessageExt:
    return replace(message, topic=without_namespace(message.topic, namespace)) if namespace else message


def instance_namespace(nameserver: str) -> str | None:
    """Returns the namespace in a NameServer's address (`MQ_INST_12_ab` in http://MQ_INST_12_ab.host:80), or None."""
    match = INSTANCE_ENDPOINT.fullmatch(nameserver.strip())
    return match.group(1) if match else None


def _split(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DLQ_PREFIX, LMQ_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
