"""What makes an assignment plainer or smaller before it is solved, with no optimum lost."""
