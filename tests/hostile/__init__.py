"""Raw bytes of strangers, sent to server processes and to clients."""
