"""Training methods, one file a name; each file has one final `Method`."""
