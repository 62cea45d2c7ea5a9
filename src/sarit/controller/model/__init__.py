"""The controller's decisions, pure: new records and effects from records, a command and the time.

`records` says what is stored, `codec` how; `epochs` and `cuts` are the arithmetic of the key space over time;
`streams`, `groups` and `transactions` decide.  Nothing here waits, reads a clock or draws lots.
"""
