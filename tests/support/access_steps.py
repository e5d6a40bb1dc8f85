"""Requests to brokers with access control, each with its answer: on ours and on both releases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyrmq_core import Command
from pyrmq_core.protocol.requests.broker.plain_acl import DeleteAclConfig, UpdateAclConfig, UpdateWhiteAddresses
from pyrmq_core.protocol.requests.broker.users import (
    CreateAcl,
    CreateUser,
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    UpdateAcl,
    UpdateUser,
)
from tests.servers.access.requests import heart_beat
from tests.servers.broker.serving import message
from tests.support.guarded import KEY, READER, READER_SECRET

USER = "ordinary-user"
NOT_GRANTED = "no matched policies."

# Key, request, code, and the text of a refusal.
Step = tuple[str | None, Command, int, str]


def send(topic: str) -> Command:
    return message(topic).to_command()


def pull(topic: str, group: str, code: int = 11) -> Command:
    fields = {"topic": topic, "consumerGroup": group, "queueId": 0, "queueOffset": 0, "maxMsgNums": 1, "sysFlag": 4}
    fields |= {"commitOffset": 0, "suspendTimeoutMillis": 0, "subscription": "*", "subVersion": 0}
    return Command(code, {name: str(value) for name, value in fields.items()})


def grants(*entries: dict[str, Any], policy_type: str = "Custom") -> dict[str, Any]:
    return {"subject": f"User:{USER}", "policies": [{"policyType": policy_type, "entries": list(entries)}]}


def grant(resource: str, *actions: str, decision: str = "Allow", ips: Sequence[str] = ()) -> dict[str, Any]:
    return {"resource": resource, "actions": list(actions), "decision": decision, "sourceIps": list(ips)}


def put(*entries: dict[str, Any], **fields: Any) -> Command:
    return CreateAcl(f"User:{USER}", grants(*entries, **fields)).to_command()


def no_permission(key: str, fault: str = NOT_GRANTED) -> str:
    return f"User:{USER} has no permission to access {key} from 127.0.0.1, {fault}"


NEW_USER = {"username": USER, "password": READER_SECRET, "userType": "Normal", "userStatus": "enable"}
USER_STEPS: list[Step] = [
    (None, send("T"), 16, "username cannot be null."),
    (None, Command(26), 16, "username cannot be null."),
    (None, Command(310, {"b": "T", "AccessKey": KEY}), 16, "check signature failed."),
    ("nobody", send("T"), 16, "User:nobody is not found."),
    (KEY, send("T"), 0, ""),
    (KEY, GetUser(USER).to_command(), 0, ""),
    (KEY, GetUser(" ").to_command(), 29, "The username is blank"),
    (KEY, CreateUser("", NEW_USER).to_command(), 29, "The username is blank"),
    (KEY, CreateUser("v", {}).to_command(), 16, "password can not be blank"),
    (KEY, CreateUser(KEY, NEW_USER).to_command(), 16, "The user is existed"),
    (KEY, CreateUser(USER, NEW_USER).to_command(), 0, ""),
    (KEY, UpdateUser("zz", {"password": "q"}).to_command(), 16, "The user is not exist"),
    (KEY, DeleteUser("zz").to_command(), 0, ""),
    (KEY, DeleteUser(" ").to_command(), 16, "username can not be blank"),
    (USER, send("T"), 16, no_permission("Topic:T")),
    (USER, Command(26), 0, ""),
    (KEY, GetAcl(f"User:{USER}").to_command(), 0, ""),
    (KEY, GetAcl("User:zz").to_command(), 16, "The subject is not exist."),
    (KEY, GetAcl("zz").to_command(), 16, "The subject is null."),
    (KEY, CreateAcl("User:zz", {**grants(grant("*", "All")), "subject": "User:zz"}).to_command(), 16, "The subject of"),
    (KEY, put(), 16, "The policies is empty."),
    (KEY, put(grant("Queue:x", "Pub")), 16, "The resource is null."),
    (KEY, put(grant("Topic:x")), 16, "The actions is empty."),
    (KEY, put(grant("Topic:x", "Fly")), 16, "The actions is empty."),
    (KEY, put(grant("Topic:x", "Any")), 16, "The actions can not be Any."),
    (KEY, put(grant("Topic:x", "Pub", ips=["10.0.0"])), 16, "The source ip is invalid."),
    (KEY, put(grant("Topic:x", "Pub", ips=["10.0.0.0/33"])), 16, "The source ip is invalid."),
    (KEY, put(grant("Topic:x", "Pub", ips=[""])), 16, "The source ip is empty."),
    (KEY, put(grant("Topic:x", "Pub", decision="X")), 16, "The decision is null or illegal."),
    (KEY, put(grant("Topic:T", "Pub"), grant("Group:G", "Sub", ips=["127.0.0.1", "10.0.0.0/8"])), 0, ""),
    (
        KEY,
        CreateAcl(f"User:{USER}", {"policies": [{"entries": [grant("topic:pre*", "sub", "GET")]}]}).to_command(),
        0,
        "",
    ),
    (KEY, UpdateAcl(f"User:{USER}", grants(grant("*", "List"), policy_type="Default")).to_command(), 0, ""),
    (
        KEY,
        put(grant("Topic:T", "Pub", "Sub"), grant("Any:zz", "List"), grant("Topic:closed", "All", decision="Deny")),
        0,
        "",
    ),
    (KEY, ListAcls("zzz").to_command(), 0, ""),
    (USER, send("T"), 0, ""),
    (USER, send("X"), 16, no_permission("Topic:X")),
    (USER, send("closed"), 16, no_permission("Topic:closed", "the decision is deny.")),
    (USER, heart_beat(("G", ("X",))), 16, no_permission("Topic:X")),
    (USER, heart_beat(("GX", ("T",))), 16, no_permission("Group:GX")),
    (USER, Command(34, body=b"{"), 16, "parse authorization context error."),
    (USER, pull("T", "G"), 0, ""),
    (USER, pull("X", "G"), 16, no_permission("Topic:X")),
    (USER, Command(11, {"queueId": "0"}), 16, no_permission("Topic:null")),
    (USER, Command(30, {"topic": "T", "queueId": "0"}), 16, no_permission("Topic:T")),
    (USER, Command(30, {"topic": "prefix", "queueId": "0"}), 0, ""),
    (USER, Command(208, {"consumerGroup": "G"}), 16, no_permission("Group:G")),
    (USER, Command(38, {"consumerGroup": "X"}), 16, no_permission("Group:X")),
    (
        USER,
        Command(15, {"consumerGroup": "G", "topic": "X", "queueId": "0", "commitOffset": "0"}),
        16,
        no_permission("Topic:X"),
    ),
    (USER, Command(215, {"topic": "T"}), 16, no_permission("Topic:T")),
    (USER, Command(207, {"groupName": "G"}), 16, no_permission("Group:G")),
    (USER, Command(204, {"producerGroup": "P"}), 16, no_permission("Cluster:DefaultCluster")),
    (USER, Command(35, {"clientID": "c", "consumerGroup": "X"}), 16, no_permission("Group:X")),
    (USER, Command(35, {"clientID": "c", "producerGroup": "X"}), 0, ""),
    (USER, Command(33, {"offset": "0", "topic": "Z"}), 16, no_permission("Topic:Z")),
    (USER, Command(36, {"group": "X", "offset": "0", "delayLevel": "0"}), 16, no_permission("Group:X")),
    (USER, send("%RETRY%X"), 16, no_permission("Group:X")),
    (
        USER,
        Command(222, {"group": "X", "topic": "T", "timestamp": "0", "isForce": "true"}),
        16,
        no_permission("Group:X"),
    ),
    (USER, Command(41, body=b'{"consumerGroup":"X","clientId":"c","mqSet":[]}'), 16, no_permission("Group:X")),
    (USER, Command(9999), 3, " request type 9999 not supported"),
    (USER, GetUser(KEY).to_command(), 16, no_permission("Cluster:DefaultCluster")),
    (KEY, DeleteAcl(f"User:{USER}", None, "Topic:none").to_command(), 0, ""),
    (KEY, DeleteAcl("zz", None, "Topic:T").to_command(), 16, "The subject is null."),
    (KEY, DeleteAcl(f"User:{USER}", None, "Topic:T").to_command(), 0, ""),
    (USER, send("T"), 16, no_permission("Topic:T")),
    (KEY, UpdateUser(USER, {"userStatus": "disable"}).to_command(), 0, ""),
    (USER, send("T"), 16, f"User:{USER} is disabled."),
    (KEY, UpdateUser(USER, {"userStatus": "enable"}).to_command(), 0, ""),
    (KEY, put(grant("Cluster:DefaultCluster", "Update")), 0, ""),
    (
        USER,
        CreateUser("s", {"password": "x", "userType": "Super"}).to_command(),
        1,
        "The super user can only be create",
    ),
    (USER, UpdateUser(KEY, {"password": "x"}).to_command(), 16, "The super user can only be update by super user"),
    (USER, UpdateUser(USER, {"userType": "Super"}).to_command(), 1, "The super user can only be update by super user"),
    (USER, DeleteUser(KEY).to_command(), 16, "The super user can only be update by super user"),
]
LAST_USER_STEPS: list[Step] = [
    (KEY, DeleteAcl(f"User:{USER}").to_command(), 0, ""),
    (KEY, DeleteAcl(f"User:{USER}").to_command(), 16, "The acl is not exist."),
    (KEY, DeleteUser(USER).to_command(), 0, ""),
    (USER, send("T"), 16, f"User:{USER} is not found."),
]


def acl_exception(text: str) -> str:
    return f"org.apache.rocketmq.acl.common.AclException: {text}"


def no_default(resource: str) -> str:
    return acl_exception(f"No default permission for {resource}")


SOME = "granted-some"
FAILED = acl_exception(f"Check signature failed for accessKey={KEY}")
ACCOUNT_STEPS: list[Step] = [
    (None, send("T"), 1, acl_exception("No accessKey is configured")),
    (None, Command(26), 1, acl_exception("No accessKey is configured")),
    (None, Command(310, {"b": "T", "AccessKey": KEY}), 1, FAILED),
    ("nobody-here", send("T"), 1, acl_exception("No acl config for nobody-here")),
    (None, Command(26, {"AccessKey": "white-address"}), 0, ""),
    (KEY, send("both"), 0, ""),
    (READER, send("T"), 1, no_default("topic:T")),
    (SOME, send("pub"), 0, ""),
    (SOME, send("no"), 1, no_default("topic:no")),
    (SOME, send("other"), 1, no_default("topic:other")),
    (SOME, send("RMQ_SYS_TRACE_TOPIC"), 0, ""),
    (READER, pull("both", "group"), 0, ""),
    (SOME, pull("both", "G"), 0, ""),
    (SOME, pull("pub", "G"), 1, no_default("topic:pub")),
    (SOME, pull("both", "X"), 1, no_default("group:X")),
    (SOME, pull("both", "GP"), 1, no_default("group:GP")),
    (SOME, heart_beat(("G", ("pub",))), 1, no_default("topic:pub")),
    (SOME, heart_beat(("X", ("both",))), 1, no_default("group:X")),
    (SOME, heart_beat(), 0, ""),
    (SOME, Command(34, body=b"{"), 1, acl_exception("")),
    (SOME, Command(35, {"clientID": "c", "consumerGroup": "X"}), 1, no_default("group:X")),
    (SOME, Command(35, {"clientID": "c", "producerGroup": "X"}), 0, ""),
    (SOME, Command(38, {"consumerGroup": "X"}), 1, no_default("group:X")),
    (
        SOME,
        Command(15, {"consumerGroup": "G", "topic": "no", "queueId": "0", "commitOffset": "0"}),
        1,
        no_default("topic:no"),
    ),
    (SOME, Command(36, {"group": "X", "offset": "0", "delayLevel": "0"}), 1, no_default("group:X")),
    *(
        (
            SOME,
            Command(code, {"topic": "both"}),
            1,
            acl_exception(f"Need admin permission for request code={code}, but"),
        )
        for code in (17, 25, 200, 207, 215)
    ),
    (SOME, Command(26), 0, ""),
    (SOME, Command(9999), 3, " request type 9999 not supported"),
    (KEY, UpdateAclConfig("short", READER_SECRET).to_command(), 209, "The accessKey=short and secretKey"),
    (KEY, UpdateAclConfig("new-account", None).to_command(), 209, "The accessKey=new-account and secretKey"),
    (
        KEY,
        UpdateAclConfig("new-account", READER_SECRET, topic_perms="t").to_command(),
        209,
        "Parse Resource format error",
    ),
    (
        KEY,
        UpdateAclConfig("new-account", READER_SECRET, group_perms="t=ANY").to_command(),
        209,
        "Parse resource permission",
    ),
    (KEY, UpdateAclConfig("new-account", READER_SECRET, topic_perms="t=PUB,u=SUB").to_command(), 0, ""),
    ("new-account", send("t"), 0, ""),
    ("new-account", send("u"), 1, no_default("topic:u")),
    (KEY, UpdateAclConfig("new-account", READER_SECRET, topic_perms="u=PUB").to_command(), 0, ""),
    ("new-account", send("u"), 0, ""),
    (
        KEY,
        DeleteAclConfig("zz").to_command(),
        210,
        "The accesskey[zz] corresponding to accessConfig has been deleted failed.",
    ),
    (KEY, DeleteAclConfig("new-account").to_command(), 0, ""),
    ("new-account", send("u"), 1, acl_exception("No acl config for new-account")),
    (
        KEY,
        UpdateWhiteAddresses("10.0.0.1", "/etc/passwd").to_command(),
        211,
        "The globalWhiteAddresses[10.0.0.1] has been",
    ),
    (KEY, UpdateWhiteAddresses("10.0.0.1,10.0.0.2", "").to_command(), 0, ""),
]
