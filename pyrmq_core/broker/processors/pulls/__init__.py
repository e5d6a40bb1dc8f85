"""Pulls: `pull_message` answers them, `pull_filters` says what each wants, `pull_advice` where its reader goes next."""
