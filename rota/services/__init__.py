"""What an agent does for those who ask: each request of the HTTP interface, carried out here or by the controller."""
