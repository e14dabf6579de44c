"""The embedded replicated log, after CORFU: no server to install, for one machine and small clusters.

Where to begin reading: `layout` (what is agreed: who holds which part of the log, epoch by epoch), `log_unit`,
`sequencer` and `host` (what a host does for it), `client` (what a program does with it) and `maps` on top of that;
`adapter` is how the management plane steers it.  Below them all: `messages`, `storage` and `runtime`.
Source: M. Balakrishnan et al., *CORFU: A Shared Log Design for Flash Clusters*, NSDI 2012.
"""
