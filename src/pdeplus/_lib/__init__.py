"""Files, locks, seeds, the registry, progress: what knows nothing of machine learning."""
