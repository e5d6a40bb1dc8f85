"""Access control: rules, files and servers."""
