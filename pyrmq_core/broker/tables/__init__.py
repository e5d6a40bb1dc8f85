"""The tables that a broker keeps in JSON files: `topics`, `subscription_groups` and `consumer_offsets`.

`config_files` reads and writes such a file, `table_file` writes one in the background.
"""
