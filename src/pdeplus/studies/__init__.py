"""Every table and figure of the paper behind one command: a file of TOML becomes a matrix of runs and an outcome."""
