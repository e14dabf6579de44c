"""What names can mean: tables and views, the scopes of a SELECT, and domains that policies imply for columns."""
