"""Reading the commit log from an offset on: its records, and damaged ranges between them."""
