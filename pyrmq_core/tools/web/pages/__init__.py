"""The pages by subject. A page function takes a request and the queries (`LookUps`), and returns a page to render."""
