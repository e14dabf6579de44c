"""What operators ask: requests to the controller, which change the agreed intent; reports; recovery by force."""
