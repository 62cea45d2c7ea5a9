"""The REST API: scopes, streams, reader groups and health under Pravega's paths, with Pravega's bodies.

`api.py` is the one table of what there is: method, path, parameters, bodies, statuses.  The routes (`routes.py`) and
the OpenAPI document (`openapi.py`) are made from it, and requests are checked against the very schemas that the
document shows (`schema.py`, `models.py`).  `bodies.py` turns bodies into core values and back.  `handlers.py` asks the
controller by the asyncio client, as any other client does.

A request is checked whole before anything is asked of the controller, and changes by one call or not at all.
"""
