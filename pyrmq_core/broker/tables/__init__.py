"""The tables that a broker keeps in JSON files: topics, subscription groups, consumer offsets."""
