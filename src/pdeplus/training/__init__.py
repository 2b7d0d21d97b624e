"""Training: config, loop, session, checkpoints, run folders, several processes."""
