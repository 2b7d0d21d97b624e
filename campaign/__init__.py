"""A campaign against the program's own trust in files: kills at random moments, damaged files, hostile input."""
