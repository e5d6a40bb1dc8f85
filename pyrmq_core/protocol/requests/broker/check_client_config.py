"""CHECK_CLIENT_CONFIG (46): asks whether a broker can evaluate a subscription's filter expression.

The response code is 0 if it can, 1 if the broker does not filter by properties, and 23 for a wrong expression. A broker
also answers 0 if wrong text follows a valid expression, and filters by the valid part. Source:
remoting/protocol/body/CheckClientRequestBody.java, broker/processor/ClientManageProcessor.java.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyrmq_core.protocol.framing.codes import RequestCode
from pyrmq_core.protocol.framing.command import Command
from pyrmq_core.protocol.java.json_text import dumps
from pyrmq_core.protocol.requests.broker.heartbeat import SubscriptionData


@dataclass(frozen=True, slots=True)
class CheckClientConfig:
    CODE: ClassVar[RequestCode] = RequestCode.CHECK_CLIENT_CONFIG
    client_id: str
    group: str
    subscription: SubscriptionData

    def to_command(self) -> Command:
        members = {
            "clientId": self.client_id,
            "group": self.group,
            "namespace": "",
            "subscriptionData": self.subscription.to_members(),
        }
        return Command(self.CODE, body=dumps(members))
