"""Consumer groups under test: members of ours and of Java's, here and in processes, and the checks of their records."""
