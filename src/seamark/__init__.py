"""Seamark: a better policy goes live only when the evidence says so."""

__version__ = "0.1.0"
