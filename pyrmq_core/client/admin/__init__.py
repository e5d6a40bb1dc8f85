"""Administration of topics, groups, brokers, NameServers, messages and access, as `mqadmin` does it."""
