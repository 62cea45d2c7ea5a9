"""`sarit schema`: the schemas of a registry that speaks Confluent's API, Sarit's own or another one.

`commands.py` and `compatibility.py` have the commands, `subjects.py` names on the command line, `files.py` schemas from
files, `transfer.py` all schemas in one file and back.
"""
