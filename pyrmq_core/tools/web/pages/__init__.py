"""The pages by subject. A page function takes the request and the look-ups and returns a template's values."""
