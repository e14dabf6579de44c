"""The world that the procedures work in: trio in an agent, virtual time in a simulator."""
