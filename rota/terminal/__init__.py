"""What commands show on a terminal: tables, documents, progress, reports that are shown again and again."""
