"""The tables that a broker keeps in JSON files: topics, groups, offsets, filters, and whether groups pull or pop.

`config_files` reads and writes such a file, `table_file` writes one in the background.
"""
