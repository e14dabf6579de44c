"""What a scheduler does when: state machines with explicit time, which know no network."""
