"""Access control of the servers: the requests that each account or user may send; broker and NameServer share it.

`plain` holds the rules of 4.9's `plain_acl.yml`, `users` the users and policies of 5.x; both are pure. `guard` puts a
verdict before a server's handler, `plain_files` and `user_file` keep the rules in files, `user_requests` answers 3001
to 3010, `settings` reads the settings, and `control` joins these for a server. Left out: RocksDB, where Java keeps
users and policies, and the import of `plain_acl.yml` into them.
"""
