"""Routes, topic configurations and broker registrations as values and JSON."""
