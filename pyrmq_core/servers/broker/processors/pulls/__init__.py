"""Pulls: `pull_message` answers them, `pull_filters` selects messages, `pull_advice` selects the next pull's broker."""
