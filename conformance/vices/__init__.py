"""Deliberately wrong loaders: one right one, and a table of small changes to it."""
