"""The membership protocol, sans-I/O: state machines that take messages, time and commands, and return effects.

The rooms, from the values up: `view` (configurations, rings, cuts), `messages`, `context` (what all components share),
`monitoring`, `cut_detection`, `agreement`, `recovery`, `dissemination`, `lifecycle`, and the `core`, which joins them.
Source: *Stable and Consistent Membership at Scale with Rapid* (USENIX ATC 2018); cited as "Rapid" from here on.
"""
