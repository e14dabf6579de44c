"""From the rows of a state to a decided placement: the questions, and the thread or process that answers them."""
