"""The rules of RocketMQ 4.9's `plain_acl.yml`, as plain functions and values. Source: acl/plain, acl/common (4.9.7)."""
