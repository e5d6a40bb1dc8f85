"""Pulls: `puller.Puller` is the only caller of the pull requests, for one pull and for ranges of a queue."""
