"""The pure decisions of the controller, from records, a command and the time to new records and effects.

`records` defines what is stored and `codec` its bytes.  `epochs` and `cuts` are the arithmetic of the key space over
time.  `streams`, `groups` and `transactions` decide.  Nothing here waits, reads a clock or uses randomness.
"""
