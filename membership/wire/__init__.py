"""The bytes around a message: envelopes, encryption, keys. No input or output."""
