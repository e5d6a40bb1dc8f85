"""Filter expressions, parsed and evaluated; pure, for client and broker alike."""
