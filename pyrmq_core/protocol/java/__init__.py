"""Java's text and number formats: JSON with unquoted keys, properties files, string hashes, integer widths."""
