"""Reading the commit log from an offset on: its records, runs of records that are alike, and what lies between."""
