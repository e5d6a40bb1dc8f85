"""The pages, one module each: a function takes the request and the look-ups, and returns its template's values."""
