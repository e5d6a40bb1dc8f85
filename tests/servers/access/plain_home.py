"""A RocketMQ home with files of plain ACL."""

from __future__ import annotations

from pathlib import Path

SECRET = "a-s3cret-key"
ADMIN, USER = "administrator", "ordinary"
ACCOUNTS = f"""
globalWhiteRemoteAddresses: []
accounts:
- accessKey: {ADMIN}
  secretKey: {SECRET}
  admin: true
- accessKey: {USER}
  secretKey: {SECRET}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms:
  - pub=PUB
  - both=PUB|SUB
"""


def plain_home(home: Path, text: str = ACCOUNTS) -> Path:
    """Writes `conf/plain_acl.yml` under a home, and returns its path."""
    path = home / "conf" / "plain_acl.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path
