"""One connection: frames, calls and their deadlines, answers, and its two bounds on memory."""
