"""Administration of topics, groups, brokers, NameServers, messages and access, with the effects of `mqadmin`."""
