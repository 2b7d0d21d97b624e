"""Evaluation: models under test, test sets, the loop, records, metrics, summaries, cost."""
