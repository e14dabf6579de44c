"""What operators ask: requests to the controller, which change the agreed wishes; reports; recovery by force."""
