"""Parsing: text to statements, with what is told by the text alone; no name is looked up here."""
