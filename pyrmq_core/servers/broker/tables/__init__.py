"""The tables that a broker keeps in JSON files: of topics, groups, offsets, filters, and modes of requests.

`config_files` reads and writes such a file, `table_file` writes one in the background.
"""
