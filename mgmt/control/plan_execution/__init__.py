"""Carrying out: a plan wave by wave, a wave step by step, and repairs that come before any plan."""
