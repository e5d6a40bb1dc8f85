"""Pulls: `pull_message` answers them, `pull_filters` chooses the messages, `pull_advice` the next pull's broker."""
