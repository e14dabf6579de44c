"""Why a state is infeasible and what would help, in terms of policies, their rows and the state's numbers."""
