"""The oracle: plain SQL in the database that checks each solution again."""
