"""Reading the commit log from an offset on: its records, and what lies between."""
