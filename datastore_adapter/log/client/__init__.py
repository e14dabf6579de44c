"""The client: appending, reading and searching streams over the chains of a layout."""
