"""The state database on PostgreSQL: translation of SQL, tables and triggers, the store and its snapshots."""
