"""Consensus on the next view: Fast Paxos on the hash of one cut, and the cuts that those hashes name.

Source: Rapid, section 4.3.
"""
