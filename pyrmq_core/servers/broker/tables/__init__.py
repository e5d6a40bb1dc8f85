"""The tables that a broker keeps in JSON files: `topics`, `subscription_groups`, `consumer_offsets`,
`consumer_filters`.

`config_files` reads and writes such a file, `table_file` writes one in the background.
"""
