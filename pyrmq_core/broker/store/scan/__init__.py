"""Reading the commit log from an offset on: its records, runs of uniform ones, and what lies between."""
