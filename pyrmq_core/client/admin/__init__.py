"""Administration: topics, clusters and NameServer configuration, one method for each `mqadmin` command."""
