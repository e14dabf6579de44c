"""Who may ask this agent for what: tokens and their roles, sessions of browsers, host names, certificates.

The rules of the HTTP interface when it can be reached from elsewhere, without any input or output except the files
that hold tokens and certificates.
"""
