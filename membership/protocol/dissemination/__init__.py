"""How news reaches everybody: gossip within a view, anti-entropy, and help for members whose view is out of date."""
