"""`EmbeddedCluster`: its arguments, its several NameServers, and the control of requests at any of its servers."""
