"""Access control of broker and NameServer: which requests each account or user may send.

`plain` has the rules of RocketMQ 4.9's `plain_acl.yml`, `users` the users and policies of RocketMQ 5. Both are pure
functions and values. `guard` checks requests before a server's handler. `plain_files` and `user_file` read and write
the files with the rules. `user_requests` answers administrators' requests about users and policies (3001 to 3010), and
`control` creates the guard that the settings require. Users and policies are stored in a JSON file, not in RocksDB as
in Java. `plain_acl.yml` is not imported into them.
"""
