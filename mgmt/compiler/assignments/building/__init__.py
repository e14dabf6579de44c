"""What the demands on one variable column come to: limits, conditions, bans and costs of an assignment problem."""
