"""The folder that `session_settings()` puts on the path of Spark's Python processes, so they run `sitecustomize`."""
