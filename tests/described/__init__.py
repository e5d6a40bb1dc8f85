"""The described system, line by line: each test is named for the line it holds true."""
