"""The folder that `session_settings()` puts on the path of Spark's Python processes, which then run `sitecustomize`."""
