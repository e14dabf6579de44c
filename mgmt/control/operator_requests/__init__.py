"""What operators ask of a controller: commands that change the agreed wishes, reports, and recovery by force."""
