"""Random calls of Pravega's registry API against a model of its numbers."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.unit.registry.pravega_peer import Peer, info

GROUPS = st.sampled_from(["g", "h"])
TYPES = st.sampled_from(["A", "B"])
DATA = st.sampled_from([b"1", b"2", b"3"])
IDS = st.integers(0, 5)
CODECS = st.sampled_from(["", "gzip"])


@dataclass
class Version:
    type: str
    data: bytes
    number: int  # in its type
    deleted: bool = False


@dataclass
class Group:
    versions: list[Version] = field(default_factory=list)
    encodings: list[tuple[int, str]] = field(default_factory=list)
    codecs: set[str] = field(default_factory=lambda: {""})
    there: bool = False

    def find(self, type_name: str, data: bytes) -> int | None:
        held = [
            id for id, one in enumerate(self.versions) if not one.deleted and (one.type, one.data) == (type_name, data)
        ]
        return held[-1] if held else None


class Numbers(RuleBasedStateMachine):
    """Ids and encodings count from 0 in each group, and none is given twice."""

    def __init__(self) -> None:
        super().__init__()
        self.peer = Peer()
        self.peer.__enter__()
        self.groups = {"g": Group(), "h": Group()}

    def teardown(self) -> None:
        self.peer.__exit__()

    def _info(self, group: str, id: int) -> dict:
        version = self.groups[group].versions[id]
        return {"type": version.type, "serializationFormat": "Any", "version": version.number, "id": id}

    @rule(name=GROUPS)
    def create(self, name: str) -> None:
        group = self.groups[name]
        if group.there:
            assert self.peer.ask("GET", f"/groups/{name}").status_code == 200
            return
        self.peer.create(name, "Any", "AllowAny")
        group.there, group.codecs = True, {""}

    @rule(name=GROUPS)
    def delete_group(self, name: str) -> None:
        self.peer.send("DELETE", f"/groups/{name}", status=204)
        group = self.groups[name]
        if group.there:
            group.there = False
            for version in group.versions:
                version.deleted = True

    @rule(name=GROUPS, type_name=TYPES, data=DATA)
    def add(self, name: str, type_name: str, data: bytes) -> None:
        group = self.groups[name]
        if not group.there:
            self.peer.add(name, info(type_name, data, "Any"), 404)
            return
        id = group.find(type_name, data)
        if id is None:
            id = len(group.versions)
            of_type = sum(one.type == type_name for one in group.versions)
            group.versions.append(Version(type_name, data, of_type))
        assert self.peer.add(name, info(type_name, data, "Any")) == self._info(name, id)

    @rule(name=GROUPS, type_name=TYPES, data=DATA)
    def find(self, name: str, type_name: str, data: bytes) -> None:
        group = self.groups[name]
        id = group.find(type_name, data) if group.there else None
        found = self.peer.ask("POST", f"/groups/{name}/schemas/versions/find", info(type_name, data, "Any"))
        assert found.status_code == (404 if id is None else 200)
        if id is not None:
            assert found.json() == self._info(name, id)

    @rule(name=GROUPS, id=IDS)
    def delete(self, name: str, id: int) -> None:
        group = self.groups[name]
        known = group.there and id < len(group.versions)
        self.peer.send("DELETE", f"/groups/{name}/schemas/schema/{id}", status=204 if known else 404)
        if known:
            group.versions[id].deleted = True

    @rule(name=GROUPS)
    def add_codec(self, name: str) -> None:
        group = self.groups[name]
        self.peer.send("POST", f"/groups/{name}/codecTypes", {"name": "gzip"}, 201 if group.there else 404)
        if group.there:
            group.codecs.add("gzip")

    @rule(name=GROUPS, id=IDS, codec=CODECS)
    def encode(self, name: str, id: int, codec: str) -> None:
        group = self.groups[name]
        body = {"versionInfo": {"type": "A", "version": 0, "id": id}, "codecType": codec}
        answer = self.peer.ask("PUT", f"/groups/{name}/encodings", body)
        if not group.there or id >= len(group.versions) or group.versions[id].deleted:
            assert answer.status_code == 404
        elif codec not in group.codecs:
            assert answer.status_code == 412
        else:
            if (id, codec) not in group.encodings:
                group.encodings.append((id, codec))
            assert answer.json() == {"encodingId": group.encodings.index((id, codec))}

    @invariant()
    def everything_is_there(self) -> None:
        for name, group in self.groups.items():
            if group.there:
                shown = self.peer.get(f"/groups/{name}/schemas/versions")["schemas"]
                live = [id for id, one in enumerate(group.versions) if not one.deleted]
                assert [one["versionInfo"] for one in shown] == [self._info(name, id) for id in live]
            for number, (id, codec) in enumerate(group.encodings):
                found = self.peer.get(f"/groups/{name}/encodings/{number}")
                assert base64.b64decode(found["schemaInfo"]["schemaData"]) == group.versions[id].data
                assert (found["versionInfo"], found["codecType"]["name"]) == (self._info(name, id), codec)


Numbers.TestCase.settings = settings(max_examples=10, stateful_step_count=25, suppress_health_check=list(HealthCheck))
TestNumbers = Numbers.TestCase
