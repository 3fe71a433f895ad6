"""Decisions about one deployment: from its spec and what is observed to values. No I/O here."""
