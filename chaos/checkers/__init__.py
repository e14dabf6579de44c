"""What must hold, whatever goes wrong: checks of views while they change, and of what clients were told, at the end."""
