"""Messages and their bytes: payloads of sends, stored records, batches, properties, compression, names and ids."""
