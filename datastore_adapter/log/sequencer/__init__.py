"""The sequencer: the next address, and where the latest records of each stream are."""
