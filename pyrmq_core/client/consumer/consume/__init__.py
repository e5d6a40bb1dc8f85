"""Passes messages of assigned queues to handlers or polls, then acknowledges them or sends them back."""
