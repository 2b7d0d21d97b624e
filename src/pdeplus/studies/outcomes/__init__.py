"""What an experiment ends in: a module each, whose `make` turns a study into tables and figures."""
