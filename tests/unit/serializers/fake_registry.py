"""A schema registry in memory: what the two clients call of Confluent's and Pravega's APIs, and no more.

Compatibility is a rule of its own, for tests: a text that contains "incompatible" is refused.
"""

from __future__ import annotations

import base64
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit


class FakeRegistry:
    """The state, and the requests that came: (method, path)."""

    def __init__(self):
        self.schemas = {}
        self.subjects = {}
        self.deleted = {}
        self.config = {None: "BACKWARD"}
        self.modes = {}
        self.groups = {}
        self.requests = []
        self.raw = None  # an answer for every request: (status, bytes)
        self.seen_authorization = None

    def register(self, subject, body):
        key = _key(body)
        schema_id = next((number for number, known in self.schemas.items() if known == key), len(self.schemas) + 1)
        schema_id = body.get("id", schema_id)
        if self.schemas.setdefault(schema_id, key) != key:
            raise Failed(422, 42207, f"Overwrite new schema with id {schema_id} is not permitted.")
        if ("id" in body) != (self.modes.get(subject) == "IMPORT"):
            raise Failed(422, 42205, f"Subject {subject} is not in import mode")
        versions = self.subjects.setdefault(subject, {})
        if schema_id not in versions.values():
            versions[body.get("version", max(versions, default=0) + 1)] = schema_id
        return schema_id


def _key(body):
    kept = {name: body[name] for name in ("schema", "schemaType", "references") if body.get(name)}
    if kept.get("schemaType") == "AVRO":
        del kept["schemaType"]
    return json.dumps(kept)


class Failed(Exception):
    def __init__(self, status, code, message):
        self.status, self.body = status, {"error_code": code, "message": message}


def confluent(fake, method, parts, query, body):
    match method, parts:
        case "POST", ["subjects", subject, "versions"]:
            if "incompatible" in body["schema"]:
                raise Failed(409, 409, "Schema being registered is incompatible:\nfield a was removed\nfield b")
            if body["schema"] == "broken":
                raise Failed(422, 42201, "Invalid schema")
            return {"id": fake.register(subject, body)}
        case "POST", ["subjects", subject]:
            for version, schema_id in fake.subjects.get(subject, {}).items():
                if fake.schemas[schema_id] == _key(body):
                    return {"subject": subject, "version": version, "id": schema_id, **body}
            raise Failed(404, 40403, "Schema not found")
        case "GET", ["schemas", "ids", schema_id]:
            if int(schema_id) not in fake.schemas:
                raise Failed(404, 40403, "Schema not found")
            return json.loads(fake.schemas[int(schema_id)])
        case "GET", ["schemas", "ids", schema_id, "versions"]:
            return [
                {"subject": subject, "version": number}
                for subject, versions in fake.subjects.items()
                for number, held in versions.items()
                if held == int(schema_id)
            ]
        case "GET", ["subjects"]:
            prefix = query.get("subjectPrefix", [""])[0].replace(":*:", "")
            return [name for name in fake.subjects if name.startswith(prefix) and _live(fake, name, query)]
        case "GET", ["subjects", subject, "versions"]:
            return list(_versions(fake, subject, query))
        case "GET", ["subjects", subject, "versions", version]:
            versions = _versions(fake, subject, query)
            number = max(versions) if version == "latest" else int(version)
            if number not in versions:
                raise Failed(404, 40402, "Version not found")
            schema = json.loads(fake.schemas[versions[number]])
            return {"subject": subject, "version": number, "id": versions[number], **schema}
        case "DELETE", ["subjects", subject]:
            return [_delete(fake, subject, number, query) for number in list(_versions(fake, subject, query))]
        case "DELETE", ["subjects", subject, "versions", version]:
            versions = _versions(fake, subject, query)
            return _delete(fake, subject, max(versions) if version == "latest" else int(version), query)
        case "POST", ["compatibility", "subjects", _, "versions", *_]:
            bad = "incompatible" in body["schema"]
            return {"is_compatible": not bad, "messages": ["field a was removed"] if bad else []}
        case "GET", ["config", *subject]:
            level = fake.config.get(subject[0] if subject else None)
            if level is None and "defaultToGlobal" not in query:
                raise Failed(404, 40408, "Subject has no config")
            return {"compatibilityLevel": level or fake.config[None]}
        case "PUT", ["config", *subject]:
            fake.config[subject[0] if subject else None] = body["compatibility"]
            return body
        case "DELETE", ["config", subject]:
            return {"compatibilityLevel": fake.config.pop(subject)}
        case "GET", ["mode", *subject]:
            mode = fake.modes.get(subject[0] if subject else None)
            if mode is None:
                raise Failed(404, 40409, "Subject has no mode")
            return {"mode": mode}
        case "PUT", ["mode", *subject]:
            if body["mode"] == "IMPORT" and fake.modes.get(None) == "READONLY":
                raise Failed(422, 42205, "The registry is read-only")
            if body["mode"] == "IMPORT" and fake.subjects.get(subject[0]) and "force" not in query:
                raise Failed(422, 42205, "Cannot import since found existing subjects")
            fake.modes[subject[0] if subject else None] = body["mode"]
            return body
        case "DELETE", ["mode", subject]:
            return {"mode": fake.modes.pop(subject)}
    raise Failed(404, 404, "HTTP 404 Not Found")


def _versions(fake, subject, query=None):
    found = _live(fake, subject, query or {})
    if not found:
        raise Failed(404, 40401, f"Subject '{subject}' not found.")
    return found


def _live(fake, subject, query):
    gone = set() if {"deleted", "permanent"} & query.keys() else fake.deleted.get(subject, set())
    return {number: held for number, held in fake.subjects.get(subject, {}).items() if number not in gone}


def _delete(fake, subject, number, query):
    gone = fake.deleted.setdefault(subject, set())
    if "permanent" in query:
        del fake.subjects[subject][number]
        gone.discard(number)
    else:
        gone.add(number)
    return number


def pravega(fake, method, parts, query, body):
    space = query.get("namespace", [""])[0]
    if (method, parts) == ("POST", ["groups"]):
        if (space, body["groupName"]) in fake.groups:
            raise Failed(409, 409, "group exists")
        fake.groups[space, body["groupName"]] = {"schemas": [], "encodings": []}
        return None
    group = fake.groups.get((space, parts[1]))
    if group is None:
        raise Failed(404, 404, "group not found")
    schemas, encodings = group["schemas"], group["encodings"]
    match method, parts[2:]:
        case "POST", ["schemas"]:
            if "incompatible" in base64.b64decode(body["schemaData"]).decode("utf-8", "replace"):
                raise Failed(409, 409, "incompatible")
            if body not in schemas:
                schemas.append(body)
            return _info(schemas, body)
        case "POST", ["schemas", "versions", "find"]:
            if body not in schemas:
                raise Failed(404, 404, "schema not found")
            return _info(schemas, body)
        case "GET", ["schemas"]:
            return {"schemas": [{"schemaInfo": one, "versionInfo": _info(schemas, one)} for one in schemas[-1:]]}
        case "PUT", ["encodings"]:
            made = (body["versionInfo"]["id"], body["codecType"])
            if made not in encodings:
                encodings.append(made)
            return {"encodingId": encodings.index(made)}
        case "GET", ["encodings", number]:
            if int(number) >= len(encodings):
                raise Failed(404, 404, "encoding not found")
            at, codec = encodings[int(number)]
            return {
                "schemaInfo": schemas[at],
                "versionInfo": _info(schemas, schemas[at]),
                "codecType": {"name": codec, "properties": {}},
            }
    raise Failed(404, 404, "HTTP 404 Not Found")


def _info(schemas, body):
    at = schemas.index(body)
    return {"type": body["type"], "serializationFormat": body["serializationFormat"], "version": at, "id": at}


@contextmanager
def served(fake=None):
    """Serve a registry on a free port of this machine; `fake.url` says where."""
    fake = fake or FakeRegistry()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self):
            url = urlsplit(self.path)
            parts = [unquote(part) for part in url.path.split("/")[1:]]
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            fake.requests.append((self.command, unquote(self.path)))
            fake.seen_authorization = self.headers.get("Authorization")
            try:
                if fake.raw is not None:
                    status, sent = fake.raw
                else:
                    face = pravega if parts[0] == "v1" else confluent
                    rest = parts[1:] if parts[0] == "v1" else parts
                    found = face(fake, self.command, rest, parse_qs(url.query), body)
                    status, sent = 200, b"" if found is None else json.dumps(found).encode()
            except Failed as failed:
                status, sent = failed.status, json.dumps(failed.body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
