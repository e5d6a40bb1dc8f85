"""The routes a client knows, the NameServers it asks for them, and which topics are batch topics."""
