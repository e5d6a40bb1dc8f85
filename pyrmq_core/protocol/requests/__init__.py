"""One file a conversation: its request, its response, and how both become commands."""
