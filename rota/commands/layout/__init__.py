"""Commands about the placement: the layout, plans for the next one, questions about it, exports of it."""
