"""Data sets, one file a name; each file has one final `Source`."""
