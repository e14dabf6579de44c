"""What makes a choice better by changing a part of it."""
