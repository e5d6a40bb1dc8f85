"""Other clients, run beside ours in processes of their own."""
